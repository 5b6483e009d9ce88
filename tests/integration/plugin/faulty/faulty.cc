// Data sets that do not keep to lockstep/dataset.h, each in its way, which is its name.

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <lockstep/plugin.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace {

enum class Fault {
  kNoClass,
  kSize,
  kShape,
  kType,
  kClass,
  kLabels,
  kLateClass,
  kLateException,
  kOnceException,
  kAway
};

template <Fault fault>
class Faulty final : public lockstep::Dataset {
 public:
  Faulty(const lockstep::DatasetInput& input, const lockstep::PluginOptions&)
      : size_(fault == Fault::kSize ? -1
              : input.is_test       ? 0
                                    : 640) {
    static std::atomic<int> made = 0;
    if (fault == Fault::kOnceException && made++ == 0) throw std::runtime_error("not there for a moment");
  }

  int64_t size() const override { return size_; }
  int64_t classes() const override { return fault == Fault::kNoClass ? 0 : 3; }
  std::vector<int64_t> sample_shape() const override { return {4}; }
  lockstep::Samples Get(std::span<const int64_t> ids) const override {
    const auto count = static_cast<int64_t>(ids.size());
    const bool is_late = std::find(ids.begin(), ids.end(), 600) != ids.end();
    if (fault == Fault::kLateException && is_late) throw std::runtime_error("sample 600 cannot be read");
    static std::atomic<int> tries = 0;
    if (fault == Fault::kAway && is_late && tries++ < 3)
      throw std::system_error(EIO, std::generic_category(), "reading sample 600");
    const bool has_bad_class = fault == Fault::kClass || (fault == Fault::kLateClass && is_late);
    return {at::zeros({count, fault == Fault::kShape ? 5 : 4}),
            at::full({count}, has_bad_class ? 3 : 1, fault == Fault::kType ? at::kInt : at::kLong)};
  }
  at::Tensor labels() const override {
    return fault == Fault::kLabels ? at::zeros({size_ + 1}, at::kLong) : at::Tensor();
  }

 private:
  const int64_t size_;
};

}  // namespace

LOCKSTEP_PLUGIN(lockstep::PluginDataset<Faulty<Fault::kNoClass>>("noClass"),
                lockstep::PluginDataset<Faulty<Fault::kSize>>("size"),
                lockstep::PluginDataset<Faulty<Fault::kShape>>("shape"),
                lockstep::PluginDataset<Faulty<Fault::kType>>("type"),
                lockstep::PluginDataset<Faulty<Fault::kClass>>("class"),
                lockstep::PluginDataset<Faulty<Fault::kLabels>>("labels"),
                lockstep::PluginDataset<Faulty<Fault::kLateClass>>("lateClass"),
                lockstep::PluginDataset<Faulty<Fault::kLateException>>("lateException"),
                lockstep::PluginDataset<Faulty<Fault::kOnceException>>("onceException"),
                lockstep::PluginDataset<Faulty<Fault::kAway>>("away"))
