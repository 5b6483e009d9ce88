#include "runtime/data/npy.h"

#include <torch/torch.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>

#include "runtime/data/bad_path.h"
#include "runtime/data/tensors.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kLongestHeader = 1 << 16;
constexpr std::size_t kMostDimensions = 8;
constexpr int64_t kMostNpyClasses = 1 << 20;
constexpr const char* kNpyFiles =
    "format npy needs train-inputs.npy, train-targets.npy, test-inputs.npy and test-targets.npy in that "
    "folder";

Error Bad(const std::string& path, const std::string& problem, const std::string& right) {
  return BadPath(path + " " + problem, right);
}

// The text after a key (with its quotes and colon) in the header, which is a Python dictionary.
std::string_view ValueOf(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view value = header.substr(at + key.size());
  while (value.starts_with(' ')) value.remove_prefix(1);
  return value;
}

std::optional<at::ScalarType> TypeOf(std::string_view description) {
  static const std::map<std::string_view, at::ScalarType> kTypes = {
      {"'|u1'", at::kByte}, {"'|i1'", at::kChar}, {"'<i2'", at::kShort}, {"'<i4'", at::kInt},
      {"'<i8'", at::kLong}, {"'<f2'", at::kHalf}, {"'<f4'", at::kFloat}, {"'<f8'", at::kDouble}};
  const auto found = kTypes.find(description.substr(0, 5));
  return found == kTypes.end() ? std::nullopt : std::optional(found->second);
}

// "(60000, 28, 28), …"; nullopt if it is no such tuple, or has more than `most` elements.
std::optional<std::vector<int64_t>> ShapeOf(std::string_view text, int64_t most) {
  std::vector<int64_t> shape;
  if (!text.starts_with('(')) return std::nullopt;
  text.remove_prefix(1);
  while (!text.starts_with(')')) {
    int64_t extent = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (error != std::errc() || extent < 1 || extent > most || shape.size() == kMostDimensions)
      return std::nullopt;
    most /= extent;
    shape.push_back(extent);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    while (text.starts_with(',') || text.starts_with(' ')) text.remove_prefix(1);
  }
  return shape;
}

Result<at::Tensor> ReadNpy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return UnreadablePath(path, errno, kNpyFiles);
  std::error_code failed;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path, failed));
  if (failed) return UnreadablePath(path, failed.value(), kNpyFiles);
  const Error damaged = Bad(path, "is not a .npy file", "write it with numpy.save");
  const auto not_read = [&] { return file.bad() ? UnreadablePath(path, errno, kNpyFiles) : damaged; };
  std::string start(8, '\0');
  if (!file.read(start.data(), 8) || !start.starts_with("\x93NUMPY")) return not_read();
  std::string length(start[6] == 1 ? 2 : 4, '\0');
  if (!file.read(length.data(), static_cast<std::streamsize>(length.size()))) return not_read();
  std::size_t header_bytes = 0;
  for (std::size_t i = length.size(); i-- > 0;)
    header_bytes = header_bytes * 256 + static_cast<unsigned char>(length[i]);
  if (header_bytes > kLongestHeader) return damaged;
  std::string header(header_bytes, '\0');
  if (!file.read(header.data(), static_cast<std::streamsize>(header_bytes))) return not_read();
  const auto type = TypeOf(ValueOf(header, "'descr':"));
  if (!type.has_value()) {
    return Bad(path, "has elements of " + std::string(ValueOf(header, "'descr':").substr(0, 6)),
               "use bytes, whole numbers or floats, little-endian");
  }
  if (!ValueOf(header, "'fortran_order':").starts_with("False"))
    return Bad(path, "is in Fortran's order", "save numpy.ascontiguousarray of it");
  const auto shape = ShapeOf(ValueOf(header, "'shape':"), bytes);
  if (!shape.has_value() || shape->empty()) return damaged;
  at::Tensor content = at::empty({0}, *type);
  int64_t elements = 1;
  for (const int64_t extent : *shape) elements *= extent;
  const int64_t content_bytes = elements * content.element_size();
  if (content_bytes != bytes - static_cast<int64_t>(file.tellg())) {
    return Bad(path, "does not have the length of its shape", "write it again");
  }
  content = at::empty(*shape, *type);
  if (!file.read(static_cast<char*>(content.data_ptr()), content_bytes)) return not_read();
  return content;
}

struct NpySplit {
  at::Tensor inputs;
  at::Tensor targets;
};

Result<NpySplit> ReadNpySplit(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name + "-targets.npy";
  LOCKSTEP_TRY(const at::Tensor inputs, ReadNpy(folder + "/" + name + "-inputs.npy"));
  LOCKSTEP_TRY(const at::Tensor targets, ReadNpy(path));
  if (inputs.dim() < 2)
    return Bad(folder + "/" + name + "-inputs.npy", "has one dimension", "[n, …] is needed");
  if (targets.dim() != 1 || targets.is_floating_point())
    return Bad(path, "is not a list of integers", "save labels as [n] of an integer type");
  if (targets.size(0) != inputs.size(0)) {
    return Bad(path,
               "has " + std::to_string(targets.size(0)) + " targets for " + std::to_string(inputs.size(0)) +
                   " inputs",
               "save as many");
  }
  const auto lowest = targets.min().item<int64_t>();
  const auto highest = targets.max().item<int64_t>();
  if (lowest < 0 || highest >= kMostNpyClasses) {
    return Bad(path, "has the label " + std::to_string(lowest < 0 ? lowest : highest),
               "labels are numbers from 0 to " + std::to_string(kMostNpyClasses - 1));
  }
  return NpySplit{inputs.to(at::kFloat), targets.to(at::kLong)};
}

}  // namespace

Result<Datasets> OpenNpy(const std::string& folder) {
  LOCKSTEP_TRY(const NpySplit train, ReadNpySplit(folder, "train"));
  LOCKSTEP_TRY(const NpySplit test, ReadNpySplit(folder, "test"));
  if (train.inputs.sizes().slice(1) != test.inputs.sizes().slice(1))
    return Bad(folder, "has training and test inputs of different shapes", "save samples of one shape");
  const int64_t classes =
      1 + std::max(train.targets.max().item<int64_t>(), test.targets.max().item<int64_t>());
  Datasets sets;
  sets.train = MakeTensorDataset(train.inputs, train.targets, classes);
  sets.test = MakeTensorDataset(test.inputs, test.targets, classes);
  return sets;
}

}  // namespace lockstep::data
