#pragma once
// The memory of this process's tensors on the host, while this lives: counted, and as much as the test says.
// Only large pieces count. One at a time; any thread.

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace lockstep::testing {

class LimitedMemory final : public c10::Allocator {
 public:
  static constexpr std::size_t kLarge = std::size_t{1} << 20;

  LimitedMemory() { c10::SetCPUAllocator(this, kPriority); }
  ~LimitedMemory() override { c10::SetCPUAllocator(before_, kPriority); }
  LimitedMemory(const LimitedMemory&) = delete;

  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes < kLarge) return before_->allocate(bytes);
    if (is_exhausted) throw std::bad_alloc();
    auto* piece = new Piece{before_->allocate(bytes), *this};  // NOLINT(cppcoreguidelines-owning-memory)
    most_pieces = std::max<int>(most_pieces, ++pieces_);
    return {piece->data.get(), piece, &Free, c10::DeviceType::CPU};
  }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }

  [[nodiscard]] int pieces() const { return pieces_; }  // that there are

  std::atomic<bool> is_exhausted = false;
  std::atomic<int> most_pieces = 0;  // at a time

 private:
  struct Piece {
    c10::DataPtr data;
    LimitedMemory& owner;
  };
  static void Free(void* context) {
    auto* piece = static_cast<Piece*>(context);
    --piece->owner.pieces_;
    delete piece;  // NOLINT(cppcoreguidelines-owning-memory)
  }

  static constexpr uint8_t kPriority = 100;
  c10::Allocator* const before_ = c10::GetCPUAllocator();
  std::atomic<int> pieces_ = 0;
};

}  // namespace lockstep::testing
