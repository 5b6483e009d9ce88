#include "runtime/common/api/profile_window.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "runtime/common/base/strings.h"

namespace lockstep::api {
namespace {

constexpr int64_t kMostSteps = 100;
constexpr std::size_t kMaxQuotedLength = 64;

// False if the text does not begin with a number.
bool TakeNumber(std::string_view& text, int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return error == std::errc() && number >= 0;
}

}  // namespace

Result<std::optional<ProfileWindow>> ParseProfileWindow(const std::string& text) {
  if (text.empty()) return std::optional<ProfileWindow>();
  ProfileWindow window;
  std::string_view rest = text;
  const bool has_first = TakeNumber(rest, window.first) && rest.starts_with('-');
  if (has_first) rest.remove_prefix(1);
  const bool is_range = has_first && TakeNumber(rest, window.last) && rest.empty();
  if (is_range && window.first <= window.last && window.last - window.first < kMostSteps)
    return std::optional(window);
  return Error{ErrorCode::kInvalidArgument,
               "LOCKSTEP_PROFILE: must name at most " + std::to_string(kMostSteps) +
                   " steps by the first and the last, as in 100-104, not \"" + text + "\""};
}

Result<int> ParseProfileSteps(const std::string& text) {
  std::string_view rest = text;
  int64_t steps = 0;
  const bool is_number = TakeNumber(rest, steps) && (rest.empty() || rest.front() == ' ');
  if (is_number && steps >= 1 && steps <= kMostSteps) return static_cast<int>(steps);
  return Error{ErrorCode::kInvalidArgument,
               std::string(kAnnotationProfile) + ": must begin with the number of steps to record, 1 to " +
                   std::to_string(kMostSteps) + R"(, as in "5" or "5 once more", not ")" +
                   Truncate(text, kMaxQuotedLength) + "\""};
}

std::optional<ProfileWindow> WindowFrom(int64_t next, int steps, int64_t total,
                                        const std::optional<ProfileWindow>& planned) {
  const bool meets = planned.has_value() && next <= planned->last && next + steps > planned->first;
  const int64_t first = meets ? planned->last + 1 : next;
  if (first >= total) return std::nullopt;
  return ProfileWindow{first, std::min(first + steps, total) - 1};
}

std::string TraceName(const ProfileWindow& window, int rank) {
  return "profile/steps-" + std::to_string(window.first) + "-" + std::to_string(window.last) + "-rank-" +
         std::to_string(rank) + ".json";
}

}  // namespace lockstep::api
