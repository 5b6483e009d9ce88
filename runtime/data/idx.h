#pragma once
// MNIST's IDX files (images and labels as unsigned bytes), plain or gzip-compressed. Pixels become float32
// and are normalised with the mean and standard deviation of the training images. The files are not trusted:
// magic number, counts and lengths are checked before memory is allocated for them.

#include <string>

#include "runtime/data/dataset.h"

namespace lockstep::data {

// `folder` holds train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte,
// t10k-labels-idx1-ubyte.
[[nodiscard]] Result<Datasets> OpenIdx(const std::string& folder);

}  // namespace lockstep::data
