#include "runtime/data/csv.h"

#include <torch/torch.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <string_view>

#include "runtime/data/bad_path.h"
#include "runtime/data/corrupt_records.h"
#include "runtime/data/tensors.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kMostColumns = 65536;
constexpr int64_t kMostCsvClasses = 1 << 20;
constexpr const char* kCsvFiles = "format csv needs train.csv and test.csv in that folder";

struct Table {
  std::vector<std::string> names;  // of all columns; empty without a header
  std::vector<float> features;     // row after row
  std::vector<int64_t> labels;
  std::vector<int64_t> corrupt;  // rows that are replaced by zeros
  std::size_t columns = 0;       // without the label
};

Error Bad(const std::string& path, int64_t line, const std::string& problem) {
  return {ErrorCode::kInvalidArgument,
          "spec.training.data.path: " + path + ", line " + std::to_string(line) + ": " + problem};
}

std::vector<std::string_view> Fields(std::string_view line, char delimiter) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::vector<std::string_view> fields;
  while (true) {
    const std::size_t end = line.find(delimiter);
    fields.push_back(line.substr(0, end));
    if (end == std::string_view::npos) return fields;
    line.remove_prefix(end + 1);
  }
}

template <typename T>
std::optional<T> Number(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class Reader {
 public:
  Reader(std::string path, const api::CsvSpec& spec, api::OnCorruptRecord on_corrupt)
      : path_(std::move(path)), spec_(spec), skips_(on_corrupt == api::OnCorruptRecord::kSkip) {}

  Result<Table> Read() {
    std::ifstream file(path_);
    if (!file) return UnreadablePath(path_, errno, kCsvFiles);
    for (std::string text; std::getline(file, text);) {
      ++line_;
      if (text.empty() || text == "\r") continue;
      const std::vector<std::string_view> fields = Fields(text, spec_.delimiter.front());
      if (!columns_.has_value()) {
        LOCKSTEP_TRY(FindLabel(fields));
        if (spec_.header) {
          table_.names.assign(fields.begin(), fields.end());
          continue;
        }
      }
      if (const std::string problem = AddRow(fields); !problem.empty()) {
        if (!skips_) return Bad(path_, line_, problem);
        AddCorruptRow(problem);
      }
      ++rows_;
    }
    if (file.bad()) return UnreadablePath(path_, errno, kCsvFiles);
    if (table_.labels.empty()) return Bad(path_, line_, "there are no samples");
    if (table_.labels.size() == table_.corrupt.size()) return Bad(path_, line_, "all lines are corrupt");
    table_.columns = *columns_ - 1;
    return std::move(table_);
  }

 private:
  Result<void> FindLabel(const std::vector<std::string_view>& fields) {
    columns_ = fields.size();
    if (fields.size() < 2 || fields.size() > kMostColumns)
      return Bad(path_, line_,
                 "a label and 1 to " + std::to_string(kMostColumns - 1) + " features are needed");
    const auto named =
        spec_.header ? std::find(fields.begin(), fields.end(), spec_.label_column) : fields.end();
    const auto number = Number<std::size_t>(spec_.label_column);
    if (named != fields.end()) {
      label_ = static_cast<std::size_t>(named - fields.begin());
    } else if (number.has_value() && *number < fields.size()) {
      label_ = *number;
    } else {
      return Error{ErrorCode::kInvalidArgument,
                   "spec.training.data.csv.labelColumn: " + path_ + " has no column \"" + spec_.label_column +
                       "\"; use " + (spec_.header ? "a name of its first line, or " : "") +
                       "a number from 0 to " + std::to_string(fields.size() - 1)};
    }
    return {};
  }

  // Returns what is wrong with the row; it may have been added in part.
  std::string AddRow(const std::vector<std::string_view>& fields) {
    if (fields.size() != *columns_) {
      return std::to_string(fields.size()) + " columns, and " + std::to_string(*columns_) +
             " in the first line";
    }
    for (std::size_t column = 0; column < fields.size(); ++column) {
      const auto quoted = [&] { return "\"" + std::string(fields[column].substr(0, 40)) + "\" "; };
      if (column == label_) {
        const auto label = Number<int64_t>(fields[column]);
        if (!label.has_value() || *label < 0 || *label >= kMostCsvClasses)
          return "the label " + quoted() + "is not an integer from 0";
        table_.labels.push_back(*label);
      } else {
        const auto feature = Number<float>(fields[column]);
        if (!feature.has_value() || !std::isfinite(*feature)) return quoted() + "is not a number";
        table_.features.push_back(*feature);
      }
    }
    return {};
  }

  // A corrupt row keeps its position among the samples: which samples a step uses must not depend on what can
  // be read.
  void AddCorruptRow(const std::string& problem) {
    const std::size_t features = *columns_ - 1;
    table_.features.resize(rows_ * features);  // removes what was added of the row
    table_.features.resize((rows_ + 1) * features);
    table_.labels.resize(rows_);
    table_.labels.resize(rows_ + 1);
    table_.corrupt.push_back(static_cast<int64_t>(rows_));
    corrupt_records_.Report(line_, path_ + ", line " + std::to_string(line_), problem);
  }

  const std::string path_;
  const api::CsvSpec& spec_;
  const bool skips_;
  CorruptRecords corrupt_records_;
  int64_t line_ = 0;
  std::size_t rows_ = 0;
  std::optional<std::size_t> columns_;
  std::size_t label_ = 0;
  Table table_;
};

// The rows that are not corrupt.
at::Tensor GoodRows(const at::Tensor& features, const Table& table) {
  if (table.corrupt.empty()) return features;
  const at::Tensor good = at::ones({features.size(0)}, at::kBool).index_fill_(0, IndexOf(table.corrupt), 0);
  return features.index_select(0, good.nonzero().view(-1));
}

at::Tensor FeaturesOf(const Table& table) {
  return torch::tensor(table.features, at::kFloat).view({-1, static_cast<int64_t>(table.columns)});
}

int64_t HighestLabel(const Table& table) {
  return *std::max_element(table.labels.begin(), table.labels.end());
}

}  // namespace

Result<Datasets> OpenCsv(const std::string& folder, const api::CsvSpec& spec,
                         api::OnCorruptRecord on_corrupt) {
  LOCKSTEP_TRY(const Table train, Reader(folder + "/train.csv", spec, on_corrupt).Read());
  LOCKSTEP_TRY(const Table test, Reader(folder + "/test.csv", spec, on_corrupt).Read());
  if (train.columns != test.columns || train.names != test.names)
    return BadPath(folder + ": train.csv and test.csv differ in their columns",
                   "write both with the same ones");
  at::Tensor train_features = FeaturesOf(train);
  at::Tensor test_features = FeaturesOf(test);
  const at::Tensor good_features = GoodRows(train_features, train);
  const at::Tensor mean = good_features.mean(0);
  at::Tensor deviation = good_features.std(0, /*unbiased=*/false);
  deviation.masked_fill_(deviation == 0, 1);
  const int64_t classes = 1 + std::max(HighestLabel(train), HighestLabel(test));
  Datasets sets;
  sets.train = MakeTensorDataset((train_features - mean) / deviation, torch::tensor(train.labels), classes,
                                 train.corrupt);
  sets.test = MakeTensorDataset((test_features - mean) / deviation, torch::tensor(test.labels), classes,
                                test.corrupt);
  return sets;
}

}  // namespace lockstep::data
