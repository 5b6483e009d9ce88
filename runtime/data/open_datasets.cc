#include "runtime/data/dataset.h"
#include "runtime/data/idx.h"
#include "runtime/data/synthetic.h"

namespace lockstep::data {

Result<Datasets> OpenDatasets(const api::DataSpec& spec, int64_t seed) {
  switch (spec.format) {
    case api::DataFormat::kIdx: return OpenIdx(spec.path);
    case api::DataFormat::kSynthetic: return MakeSynthetic(spec.synthetic, seed);
    default:
      return Error{ErrorCode::kUnsupported,
                   "spec.training.data.format: " + std::string(api::NameOf(spec.format)) +
                       " is not implemented yet; use idx or synthetic"};
  }
}

}  // namespace lockstep::data
