#include "runtime/tools/convert/yaml_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <vector>

#include "runtime/common/base/strings.h"

namespace lockstep::convert {
namespace {

// These keys come first, in this order; all others follow alphabetically.
constexpr std::array kFirst = {"apiVersion",
                               "kind",
                               "metadata",
                               "spec",
                               "name",
                               "key",
                               "namespace",
                               "labels",
                               "annotations",
                               "managedBy",
                               "suspend",
                               "nprocPerNode",
                               "worker",
                               "replicas",
                               "containerName",
                               "template",
                               "elasticPolicy",
                               "rendezvous",
                               "failurePolicy",
                               "minReplicas",
                               "runPolicy",
                               "successPolicy",
                               "schedulingPolicy",
                               "network",
                               "image",
                               "imagePullPolicy",
                               "command",
                               "args",
                               "env",
                               "action"};
constexpr std::size_t kLongestLine = 100;

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

// A number in YAML 1.1 or 1.2, or a text so similar that a reader may take it for one.
bool LooksLikeNumber(std::string_view text) {
  if (text.front() == '+' || text.front() == '-') text.remove_prefix(1);
  if (text.empty()) return true;
  const std::string lower = Lower(text);
  if (lower == ".inf" || lower == ".nan") return true;
  const bool begins = text.front() == '.' || std::isdigit(static_cast<unsigned char>(text.front())) != 0;
  return begins && lower.find_first_not_of("0123456789abcdefxo.:_+-tz") == std::string::npos;
}

bool IsWordOfYaml(std::string_view text) {
  static constexpr std::array kWords = {"true", "false", "yes", "no", "on", "off", "y", "n", "null", "~"};
  return std::find(kWords.begin(), kWords.end(), Lower(text)) != kWords.end();
}

bool IsPlain(std::string_view text) {
  static constexpr std::string_view kSafe = "_./:@=+- ";
  if (text.empty() || text.front() == ' ' || text.back() == ' ' || text.back() == ':') return false;
  if (text.front() == '@' || text.front() == ':' || text.front() == '=' || text.starts_with("- ") ||
      text.starts_with("---"))
    return false;
  const bool is_safe = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c < 0x80 && std::isalnum(c) != 0) || kSafe.find(static_cast<char>(c)) != std::string_view::npos;
  });
  return is_safe && text.find(": ") == std::string_view::npos && !LooksLikeNumber(text) &&
         !IsWordOfYaml(text);
}

std::string ScalarText(const Json& value) {
  if (value.is_string() && IsPlain(value.get_ref<const std::string&>())) return value.get<std::string>();
  return DumpJson(value);  // JSON is valid YAML
}

// Whether the text can be written as a block below `|`, without quotes.
bool IsBlock(const Json& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  if (text.find('\n') == std::string::npos || text.front() == ' ' || text.front() == '\n') return false;
  if (text.ends_with("\n\n")) return false;
  const bool is_printable = std::all_of(text.begin(), text.end(),
                                        [](unsigned char c) { return c == '\n' || (c >= ' ' && c != 0x7f); });
  if (!is_printable) return false;
  const std::vector<std::string> lines = Split(text, '\n');
  return std::none_of(lines.begin(), lines.end(), [](const std::string& line) {
    return !line.empty() && line.find_first_not_of(' ') == std::string::npos;
  });
}

std::size_t RankOf(const std::string& key) {
  return static_cast<std::size_t>(std::find(kFirst.begin(), kFirst.end(), key) - kFirst.begin());
}

std::vector<std::string> OrderedKeys(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  std::stable_sort(keys.begin(), keys.end(), [](const std::string& left, const std::string& right) {
    return RankOf(left) < RankOf(right);
  });
  return keys;
}

class Writer {
 public:
  explicit Writer(const Comments& comments) : comments_(comments) {}

  std::string Write(const Json& value) && {
    if (IsOneLine(value, 0)) {
      text_ = OneLine(value) + "\n";
    } else {
      Block(value, 0, "");
    }
    return std::move(text_);
  }

 private:
  static bool IsOneLine(const Json& value, std::size_t indent) {
    if (value.is_object()) return value.empty();
    if (!value.is_array()) return !IsBlock(value);
    const bool is_flat = std::all_of(value.begin(), value.end(), [](const Json& entry) {
      return !entry.is_structured() && !IsBlock(entry);
    });
    return is_flat && indent + OneLine(value).size() <= kLongestLine;
  }

  static std::string OneLine(const Json& value) {
    if (!value.is_structured()) return ScalarText(value);
    if (value.is_object()) return "{}";
    std::vector<std::string> entries;
    for (const Json& entry : value) entries.push_back(ScalarText(entry));
    return "[" + Join(entries, ", ") + "]";
  }

  // Writes the value after "key:" or "-", on the same line or below.
  void Value(const Json& value, std::size_t indent, const std::string& path) {
    if (IsBlock(value)) return Literal(value.get_ref<const std::string&>(), indent);
    if (IsNumbers(value)) return Numbers(value, indent);
    if (IsOneLine(value, indent)) {
      text_ += ' ' + OneLine(value) + "\n";
      return;
    }
    text_ += '\n';
    // As in our examples: the dashes of a list are below its key.
    Block(value, value.is_array() ? indent - 2 : indent, path);
  }

  static bool IsNumbers(const Json& value) {
    return value.is_array() && !value.empty() &&
           std::all_of(value.begin(), value.end(), [](const Json& entry) { return entry.is_number(); });
  }

  // As many per line as fit.
  void Numbers(const Json& list, std::size_t indent) {
    std::string line = " [";
    for (std::size_t index = 0; index < list.size(); ++index) {
      const std::string entry = ScalarText(list[index]) + (index + 1 < list.size() ? "," : "]");
      if (indent + line.size() + entry.size() > kLongestLine) {
        text_ += line + "\n";
        line = std::string(indent, ' ');
      } else if (index > 0) {
        line += ' ';
      }
      line += entry;
    }
    text_ += line + "\n";
  }

  void Literal(const std::string& text, std::size_t indent) {
    const bool ends = text.back() == '\n';
    text_ += ends ? " |\n" : " |-\n";
    for (const std::string& line : Split(ends ? text.substr(0, text.size() - 1) : text, '\n'))
      text_ += line.empty() ? "\n" : std::string(indent, ' ') + line + "\n";
  }

  void Block(const Json& value, std::size_t indent, const std::string& path) {
    if (value.is_object()) {
      Object(value, indent, path, false);
    } else {
      List(value, indent, path);
    }
  }

  // `is_begun`: the first key is on the line of a dash.
  void Object(const Json& object, std::size_t indent, const std::string& path, bool is_begun) {
    for (const std::string& key : OrderedKeys(object)) {
      const std::string place = path.empty() ? key : path + "." + key;
      if (!is_begun) {
        Comment(place, indent);
        text_ += std::string(indent, ' ');
      }
      is_begun = false;
      text_ += ScalarText(key) + ":";
      Value(object[key], indent + 2, place);
    }
  }

  void List(const Json& list, std::size_t indent, const std::string& path) {
    for (std::size_t index = 0; index < list.size(); ++index) {
      const std::string place = path + "[" + std::to_string(index) + "]";
      Comment(place, indent);
      text_ += std::string(indent, ' ') + "-";
      const Json& entry = list[index];
      if (entry.is_object() && !entry.empty()) {
        text_ += ' ';
        Object(entry, indent + 2, place, true);
      } else {
        Value(entry, entry.is_array() ? indent + 4 : indent + 2, place);
      }
    }
  }

  void Comment(const std::string& place, std::size_t indent) {
    const auto found = comments_.find(place);
    if (found == comments_.end()) return;
    for (const std::string& line : Split(found->second, '\n'))
      text_ += std::string(indent, ' ') + "# " + line + "\n";
  }

  const Comments& comments_;
  std::string text_;
};

}  // namespace

std::string WriteYaml(const Json& value, const Comments& comments) { return Writer(comments).Write(value); }

}  // namespace lockstep::convert
