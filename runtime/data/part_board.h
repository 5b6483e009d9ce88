#pragma once
// Which parts of a copy are on disk, and for which of them somebody waits: one byte for each, in a file that
// all processes of the machine map. The file outlives them, as what it tells of does. Any thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/common/base/file.h"
#include "runtime/common/base/result.h"
#include "runtime/data/remote_objects.h"

namespace lockstep::data {

struct Part {
  std::size_t object = 0;
  int64_t offset = 0;
  int64_t bytes = 0;

  friend bool operator==(const Part&, const Part&) = default;
};

// The parts of all objects, numbered one after the other; an empty object has one, of no bytes. Pure.
class PartNumbers {
 public:
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;

    friend bool operator==(const Range&, const Range&) = default;
  };

  PartNumbers(const std::vector<RemoteObject>& objects, int64_t part_bytes);

  [[nodiscard]] std::size_t count() const { return first_.back(); }
  [[nodiscard]] Part At(std::size_t number) const;
  [[nodiscard]] Range Of(std::size_t object) const { return {first_[object], first_[object + 1]}; }
  // Those in which bytes [begin, end) of an object lie.
  [[nodiscard]] Range Holding(std::size_t object, int64_t begin, int64_t end) const;

 private:
  std::vector<int64_t> bytes_;      // of each object
  std::vector<std::size_t> first_;  // number of each object's first part, and after the last one the count
  int64_t part_bytes_;
};

class PartBoard {
 public:
  // Makes the file, with no part there, unless it is one of so many parts. Nobody else may use it.
  [[nodiscard]] static Result<PartBoard> Make(const std::string& path, std::size_t parts);
  // Nothing where nobody has made it.
  [[nodiscard]] static std::optional<PartBoard> Open(const std::string& path, std::size_t parts);

  PartBoard(PartBoard&& other) noexcept;
  PartBoard& operator=(PartBoard&&) = delete;
  ~PartBoard();

  [[nodiscard]] bool IsThere(std::size_t part) const;
  [[nodiscard]] bool IsWanted(std::size_t part) const;
  void SetThere(std::size_t part);
  void SetMissing(std::size_t part);  // where it was said to be there
  // Those that are not there are to come before others.
  void Want(const std::vector<std::size_t>& parts);
  // Rises whenever something is wanted.
  [[nodiscard]] uint64_t requests() const;

  // The objects are no longer those that are copied: nothing more will come, and what is there is refused.
  [[nodiscard]] bool changed() const;
  void SetChanged();

  [[nodiscard]] int fd() const { return file_.get(); }  // for locks

 private:
  struct Head {
    uint64_t requests;
    uint64_t changed;
  };

  PartBoard(Fd file, void* memory, std::size_t bytes)
      : file_(std::move(file)), memory_(memory), bytes_(bytes) {}
  static std::optional<PartBoard> Map(Fd file, std::size_t parts);
  [[nodiscard]] Head& head() const { return *static_cast<Head*>(memory_); }
  [[nodiscard]] unsigned char& At(std::size_t part) const;

  Fd file_;
  void* memory_;
  std::size_t bytes_;
};

}  // namespace lockstep::data
