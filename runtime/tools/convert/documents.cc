#include "runtime/tools/convert/documents.h"

#include <algorithm>
#include <utility>

#include "runtime/common/api/manifest.h"

namespace lockstep::convert {
namespace {

constexpr std::string_view kMarker = "---";

// At the beginning of a line YAML permits three dashes and a blank only as a marker, even inside a quoted
// text.
bool IsMarker(std::string_view line) {
  return line.starts_with(kMarker) && (line.size() == kMarker.size() ||
                                       std::string_view(" \t\r\n").find(line[3]) != std::string_view::npos);
}

Result<Document> ReadDocument(std::string text, std::size_t lines_before) {
  // The preceding empty lines give error messages the line number in the file.
  LOCKSTEP_TRY(std::vector<Json> values, api::ParseManifest(std::string(lines_before, '\n') + text));
  if (values.size() > 1)
    return Error{ErrorCode::kInvalidArgument, "documents must be separated by lines that begin with ---"};
  return Document{std::move(text), values.empty() ? Json() : std::move(values.front())};
}

}  // namespace

Result<std::vector<Document>> ReadDocuments(std::string_view text) {
  std::vector<Document> documents;
  std::string open;
  std::size_t line = 0;
  std::size_t open_since = 0;
  const auto close = [&]() -> Result<void> {
    LOCKSTEP_TRY(Document document, ReadDocument(std::exchange(open, ""), open_since));
    documents.push_back(std::move(document));
    return {};
  };
  for (std::size_t at = 0; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    std::string_view content = text.substr(at, end - at);
    at = end;
    if (IsMarker(content)) {
      if (line > 0) LOCKSTEP_TRY(close());
      content.remove_prefix(kMarker.size());
      const bool is_bare = content.find_first_not_of(" \t\r\n") == std::string_view::npos;
      open_since = is_bare ? line + 1 : line;
      if (is_bare) continue;
    }
    open += content;
  }
  LOCKSTEP_TRY(close());
  return documents;
}

}  // namespace lockstep::convert
