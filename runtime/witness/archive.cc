#include "runtime/witness/archive.h"

#include <zlib.h>

#include <cstdint>

#include "runtime/witness/page.h"

namespace lockstep::witness {
namespace {

constexpr uint16_t kVersion = 10;           // needed to extract: the first one
constexpr uint16_t kDate = (1U << 5) | 1U;  // 1 January 1980: the archive does not depend on the time

void Put16(std::string& out, uint16_t value) {
  out += static_cast<char>(value & 0xff);
  out += static_cast<char>(value >> 8);
}
void Put32(std::string& out, uint32_t value) {
  Put16(out, static_cast<uint16_t>(value & 0xffff));
  Put16(out, static_cast<uint16_t>(value >> 16));
}

uint32_t Checksum(std::string_view text) {
  return static_cast<uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

// What the header before a file and its entry in the directory have in common.
void PutFile(std::string& out, const PythonFile& file) {
  Put16(out, kVersion);
  Put16(out, 0);  // flags
  Put16(out, 0);  // method: stored
  Put16(out, 0);  // time
  Put16(out, kDate);
  Put32(out, Checksum(file.text));
  Put32(out, static_cast<uint32_t>(file.text.size()));
  Put32(out, static_cast<uint32_t>(file.text.size()));
  Put16(out, static_cast<uint16_t>(file.name.size()));
  Put16(out, 0);  // extra field
}

}  // namespace

std::string ZipOf(const std::vector<PythonFile>& files) {
  std::string zip;
  std::string directory;
  for (const PythonFile& file : files) {
    const auto offset = static_cast<uint32_t>(zip.size());
    Put32(zip, 0x04034b50);
    PutFile(zip, file);
    zip.append(file.name).append(file.text);
    Put32(directory, 0x02014b50);
    Put16(directory, kVersion);
    PutFile(directory, file);
    Put16(directory, 0);  // comment
    Put16(directory, 0);  // disk
    Put16(directory, 0);  // internal attributes
    Put32(directory, 0);  // external attributes
    Put32(directory, offset);
    directory.append(file.name);
  }
  const auto start = static_cast<uint32_t>(zip.size());
  const auto count = static_cast<uint16_t>(files.size());
  zip += directory;
  Put32(zip, 0x06054b50);
  Put16(zip, 0);  // this disk
  Put16(zip, 0);  // the directory's disk
  Put16(zip, count);
  Put16(zip, count);
  Put32(zip, static_cast<uint32_t>(directory.size()));
  Put32(zip, start);
  Put16(zip, 0);  // comment
  return zip;
}

Result<Fd> MakeArchive() { return MakeMemoryFile("lockstep-witness", ZipOf(PythonFiles())); }

}  // namespace lockstep::witness
