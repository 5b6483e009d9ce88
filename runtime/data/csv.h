#pragma once
// Tables of numbers with a label in each line: train.csv and test.csv of a folder (RFC 4180 without quoted
// fields: numbers need none). Features are normalised, column by column, with the mean and deviation of the
// training lines; labels are whole numbers from 0. A line that does not fit is an error that names it, or a
// sample that is left out of each batch, and of mean and deviation.

#include <string>

#include "runtime/data/dataset.h"

namespace lockstep::data {

[[nodiscard]] Result<Datasets> OpenCsv(const std::string& folder, const api::CsvSpec& spec,
                                       api::OnCorruptRecord on_corrupt = api::OnCorruptRecord::kFail);

}  // namespace lockstep::data
