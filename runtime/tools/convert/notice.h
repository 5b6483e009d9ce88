#pragma once
// The messages of a conversion for the user. Values.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/result.h"
#include "runtime/tools/convert/field_table.h"

namespace lockstep::convert {

enum class Severity { kWarning, kError };

struct Notice {
  Severity severity = Severity::kWarning;
  std::string path;
  std::string text;
};

class Notices {
 public:
  void Warn(std::string path, std::string text) {
    list_.push_back({Severity::kWarning, std::move(path), std::move(text)});
  }
  // The job would behave differently.
  void Fail(std::string path, std::string text) {
    list_.push_back({Severity::kError, std::move(path), std::move(text)});
  }
  // For a field without a counterpart: the remark of the table.
  void Say(const Field& field, std::string path) {
    LOCKSTEP_CHECK(field.fate != Fate::kBecomes, std::string(field.theirs));
    const bool is_lost = field.fate == Fate::kLost;
    list_.push_back({is_lost ? Severity::kError : Severity::kWarning, std::move(path),
                     (is_lost ? "cannot be kept: " : "is not needed: ") + std::string(field.remark)});
  }
  void Add(const std::vector<Notice>& notices) { list_.insert(list_.end(), notices.begin(), notices.end()); }
  [[nodiscard]] const std::vector<Notice>& list() const { return list_; }

 private:
  std::vector<Notice> list_;
};

}  // namespace lockstep::convert
