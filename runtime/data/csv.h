#pragma once
// Tables of numbers with a label in each line: train.csv and test.csv of a folder (RFC 4180 without quoted
// fields, which numbers do not need). Features are normalised per column with the mean and standard deviation
// of the training lines; labels are integers from 0. An invalid line is either an error that names it, or a
// corrupt sample that is excluded from batches and from mean and deviation.

#include <string>

#include "runtime/data/dataset.h"

namespace lockstep::data {

[[nodiscard]] Result<Datasets> OpenCsv(const std::string& folder, const api::CsvSpec& spec,
                                       api::OnCorruptRecord on_corrupt = api::OnCorruptRecord::kFail);

}  // namespace lockstep::data
