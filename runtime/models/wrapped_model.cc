#include "runtime/models/wrapped_model.h"

#include <utility>

namespace lockstep::models {

WrappedModel::WrappedModel(std::shared_ptr<Model> model) : model_(std::move(model)) {
  for (const auto& parameter : model_->named_parameters(/*recurse=*/false))
    register_parameter(parameter.key(), parameter.value(), parameter.value().requires_grad());
  for (const auto& buffer : model_->named_buffers(/*recurse=*/false))
    register_buffer(buffer.key(), buffer.value());
  for (const auto& child : model_->named_children()) register_module(child.key(), child.value());
}

void WrappedModel::train(bool on) {
  Model::train(on);
  model_->train(on);
}

}  // namespace lockstep::models
