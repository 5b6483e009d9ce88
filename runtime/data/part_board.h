#pragma once
// Records which parts of a copy are on disk and which of them a reader waits for: one byte per part, in a
// file that all processes of the machine map. The file is kept together with the copy. Any thread.

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

// The parts of all objects, numbered consecutively; an empty object has one part of 0 bytes. Pure.
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
  // The parts that contain bytes [begin, end) of an object.
  [[nodiscard]] Range Holding(std::size_t object, int64_t begin, int64_t end) const;

 private:
  std::vector<int64_t> bytes_;      // of each object
  std::vector<std::size_t> first_;  // number of each object's first part, and the total count at the end
  int64_t part_bytes_;
};

class PartBoard {
 public:
  // Creates the file, with all parts missing, unless it exists with this number of parts. No other process
  // may use it meanwhile.
  [[nodiscard]] static Result<PartBoard> Make(const std::string& path, std::size_t parts);
  // Returns nothing if the file does not exist yet.
  [[nodiscard]] static std::optional<PartBoard> Open(const std::string& path, std::size_t parts);

  PartBoard(PartBoard&& other) noexcept;
  PartBoard& operator=(PartBoard&&) = delete;
  ~PartBoard();

  [[nodiscard]] bool IsThere(std::size_t part) const;
  [[nodiscard]] bool IsWanted(std::size_t part) const;
  void SetThere(std::size_t part);
  void SetMissing(std::size_t part);  // corrects an entry that said the part exists
  // Gives these parts priority if they are missing.
  void Want(const std::vector<std::size_t>& parts);
  // Increases whenever a part is requested.
  [[nodiscard]] uint64_t requests() const;

  // The remote objects have changed: no more parts will arrive, and existing ones must not be used.
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
