#pragma once
// A temporary folder with two small files of text, for data of the format "tokens". One thread.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep::train {

class TokenFolder {
 public:
  TokenFolder() : path_(::mkdtemp(name_.data())) {
    for (const char* name : {"train.txt", "val.txt"}) {
      std::ofstream file(path_ + "/" + name);
      for (int i = 0; i < 500; ++i) file << static_cast<char>('a' + i * i % 23);
    }
  }
  ~TokenFolder() { std::filesystem::remove_all(path_); }
  TokenFolder(const TokenFolder&) = delete;
  TokenFolder& operator=(const TokenFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string name_ = (std::filesystem::temp_directory_path() / "lockstep-tokens-XXXXXX").string();
  std::string path_;
};

}  // namespace lockstep::train
