#include "runtime/comm/round_store.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <utility>
#include <vector>

#include "runtime/comm/torch_error.h"

namespace lockstep::comm {
namespace {

class StoreOfC10d final : public RoundStore {
 public:
  explicit StoreOfC10d(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  Result<void> Set(const std::string& key, const std::string& value) override {
    return CatchTorch(ErrorCode::kAborted, "the round's store",
                      [&] { store_->set(key, std::vector<uint8_t>(value.begin(), value.end())); });
  }
  Result<std::optional<std::string>> Get(const std::string& key) override {
    std::optional<std::string> value;
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kAborted, "the round's store", [&] {
      if (!store_->check({key})) return;
      const std::vector<uint8_t> bytes = store_->get(key);
      value.emplace(bytes.begin(), bytes.end());
    }));
    return value;
  }
  Result<int64_t> Add(const std::string& key, int64_t amount) override {
    int64_t sum = 0;
    LOCKSTEP_TRY(
        CatchTorch(ErrorCode::kAborted, "the round's store", [&] { sum = store_->add(key, amount); }));
    return sum;
  }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::shared_ptr<RoundStore> MakeRoundStore(c10::intrusive_ptr<c10d::Store> store) {
  return std::make_shared<StoreOfC10d>(std::move(store));
}

}  // namespace lockstep::comm
