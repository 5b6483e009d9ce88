#include "runtime/launch/run/node_list.h"

#include <algorithm>
#include <charconv>

#include "runtime/common/base/strings.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kMostDigits = 9;
constexpr std::size_t kLongestName = 253;  // of DNS

Error WrongNodeList(const std::string& what) { return {ErrorCode::kInvalidArgument, what}; }

Error TooMany() { return WrongNodeList("names more than " + std::to_string(kMostMachines) + " machines"); }

bool IsNumber(std::string_view text) {
  return !text.empty() && text.size() <= kMostDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool MayBeInAName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_';
}

int NumberOf(std::string_view digits) {
  int number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

std::string Padded(int number, std::size_t width) {
  const std::string digits = std::to_string(number);
  return std::string(width - std::min(width, digits.size()), '0') + digits;
}

// Expands the text between brackets: "1-3,07".
Result<std::vector<std::string>> ExpandRanges(const std::string& text) {
  std::vector<std::string> numbers;
  for (const std::string& range : Split(text, ',')) {
    const std::size_t dash = range.find('-');
    const std::string first = range.substr(0, dash);
    const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
    if (!IsNumber(first) || !IsNumber(last) || NumberOf(first) > NumberOf(last))
      return WrongNodeList("\"" + range + "\" is not a number or a range of numbers");
    const int count = NumberOf(last) - NumberOf(first) + 1;
    if (numbers.size() + static_cast<std::size_t>(count) > kMostMachines) return TooMany();
    for (int i = 0; i < count; ++i) numbers.push_back(Padded(NumberOf(first) + i, first.size()));
  }
  return numbers;
}

// Commas inside brackets separate ranges, those outside separate names.
Result<std::vector<std::string>> SplitNames(std::string_view text) {
  std::vector<std::string> names(1);
  bool in_brackets = false;
  for (const char c : text) {
    if ((c == '[' && in_brackets) || (c == ']' && !in_brackets))
      return WrongNodeList("its brackets do not match");
    if (c == '[' || c == ']') in_brackets = c == '[';
    if (c == ',' && !in_brackets) {
      names.emplace_back();
      continue;
    }
    if (c != '[' && c != ']' && c != ',' && !MayBeInAName(c))
      return WrongNodeList("no machine's name has such characters");
    names.back() += c;
  }
  if (in_brackets) return WrongNodeList("its brackets do not match");
  return names;
}

// Appends each ending to each text.
Result<std::vector<std::string>> Product(const std::vector<std::string>& texts,
                                         const std::vector<std::string>& endings) {
  if (texts.size() * endings.size() > kMostMachines) return TooMany();
  if (texts.front().size() + endings.front().size() > kLongestName)
    return WrongNodeList("a name in it is too long");
  std::vector<std::string> product;
  for (const std::string& text : texts) {
    for (const std::string& ending : endings) product.push_back(text + ending);
  }
  return product;
}

Result<std::vector<std::string>> ExpandName(std::string_view name) {
  if (name.empty() || name.front() == '-' || name.front() == '.')
    return WrongNodeList("a name in it is empty or begins with - or .");
  std::vector<std::string> expanded{""};
  while (!name.empty()) {
    const std::size_t literal = std::min(name.find('['), name.size());
    LOCKSTEP_TRY(expanded, Product(expanded, {std::string(name.substr(0, literal))}));
    name.remove_prefix(literal);
    if (name.empty()) break;
    const std::size_t close = name.find(']');
    LOCKSTEP_TRY(const auto numbers, ExpandRanges(std::string(name.substr(1, close - 1))));
    LOCKSTEP_TRY(expanded, Product(expanded, numbers));
    name.remove_prefix(close + 1);
  }
  return expanded;
}

Result<std::vector<std::string>> Expand(std::string_view text) {
  LOCKSTEP_TRY(const auto names, SplitNames(text));
  std::vector<std::string> all;
  for (const std::string& name : names) {
    LOCKSTEP_TRY(const auto expanded, ExpandName(name));
    if (all.size() + expanded.size() > kMostMachines) return TooMany();
    all.insert(all.end(), expanded.begin(), expanded.end());
  }
  return all;
}

}  // namespace

Result<std::vector<std::string>> ExpandNodeList(std::string_view text) {
  return Expand(text).WithContext("\"" + Truncate(text, 200) + "\"");
}

}  // namespace lockstep::launch
