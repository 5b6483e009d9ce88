// The store of checkpoints, for upload.py: puts and gets one object on request.
//
// upload_bench URI BYTES    reads "put" or "get" lines, answers each with the seconds it took

#include <iostream>
#include <random>
#include <string>

#include "runtime/checkpoint/open_store.h"
#include "runtime/common/base/clock.h"

namespace {

using lockstep::SystemClock;
using lockstep::checkpoint::ObjectStore;

constexpr const char* kObject = "object";

std::string RandomBytes(std::size_t count) {
  std::mt19937_64 random(1);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// What went wrong; empty: nothing.
std::string Do(const std::string& what, ObjectStore& store, const std::string& content) {
  if (what == "put") {
    const auto put = store.Put(kObject, content);
    return put.ok() ? "" : put.error().ToString();
  }
  const auto got = store.Get(kObject);
  if (!got.ok()) return got.error().ToString();
  return got->size() == content.size() ? "" : "another size came back";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "upload_bench URI BYTES\n";
    return 2;
  }
  const auto store = lockstep::checkpoint::OpenObjectStore(argv[1]);
  if (!store.ok()) {
    std::cerr << store.error().ToString() << "\n";
    return 1;
  }
  const std::string content = RandomBytes(std::stoull(argv[2]));
  const SystemClock clock;
  std::cout << "ready" << std::endl;
  for (std::string what; std::getline(std::cin, what);) {
    const auto start = clock.Steady();
    const std::string problem = Do(what, **store, content);
    if (!problem.empty()) {
      std::cerr << what << ": " << problem << "\n";
      return 1;
    }
    std::cout << lockstep::Seconds(clock.Steady() - start).count() << std::endl;
  }
  return 0;
}
