#pragma once
// A temporary folder with two small files of text, for data of the format "tokens", and a training of it. One
// thread.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/common/api/training_spec.h"

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

// Makes it the training of a small gpt on the folder.
inline void TrainGptOn(const TokenFolder& folder, api::TrainingSpec& spec) {
  spec.model.name = api::ModelName::kGpt;
  spec.model.gpt = {
      .layers = 3, .heads = 2, .embedding_size = 16, .context_length = 8, .vocabulary_size = 256};
  // Not Adam, because it amplifies rounding errors of the keys' biases, whose gradient is zero, to a whole
  // step.
  spec.optimizer.name = api::OptimizerName::kSgd;
  spec.optimizer.momentum = 0.9;
  spec.data.format = api::DataFormat::kTokens;
  spec.data.path = folder.path();
  spec.data.synthetic.shape = {8};  // the input for which Trainer creates the model
}

}  // namespace lockstep::train
