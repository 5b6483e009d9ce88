#pragma once
// A folder of images for each class: train/CLASS/*.jpg, *.jpeg or *.png, and test/CLASS/… with the same
// classes, which are numbered in the order of their names. Opening lists the files; each is read and decoded
// when a batch needs it, on the thread that asks, which waits for those that are still arriving.

#include <string>

#include "runtime/data/dataset.h"
#include "runtime/data/local_copy.h"

namespace lockstep::data {

// Samples are [3, size, size], from 0 to 1. Get throws ErrorException: kDataLoss where a file holds no image
// that can be used, unless those are skipped, or that may not be read; kAborted where the file system is away for
// longer than the retries last, kInternal where reading fails otherwise: both may be over in the next round.
[[nodiscard]] Result<Datasets> OpenImageFolder(const std::string& folder, const api::ImageFolderSpec& spec,
                                               api::OnCorruptRecord on_corrupt = api::OnCorruptRecord::kFail,
                                               const FileAccess& access = {});

}  // namespace lockstep::data
