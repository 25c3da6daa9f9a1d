// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/units/read_check.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/torch.h>

#include <cstddef>
#include <memory>

#include "ddp_runtime/parallel/sharded/memory/flat_shard.h"
#include "ddp_runtime/parallel/sharded/units/unit_calls.h"

namespace ddp {
namespace {

// Whether the operator only gives another view of this argument, as detach() does. What has no
// schema is a record around operators.
bool is_viewed(const at::RecordFunction& function, std::size_t argument) {
  const auto name = function.operator_name();
  if (!name) return true;
  const auto found = c10::Dispatcher::singleton().findSchema(*name);
  if (!found || argument >= found->schema().arguments().size()) return false;
  const auto* const alias = found->schema().arguments()[argument].alias_info();
  return alias != nullptr && !alias->isWrite();
}

bool has_no_memory(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && tensor.numel() > 0 &&
         tensor.storage().data_ptr().get() == nullptr;
}

std::unique_ptr<at::ObserverContext> check_reads(const at::RecordFunction& function) {
  const auto check = [&](const torch::Tensor& tensor, std::size_t argument) {
    if (!has_no_memory(tensor) || is_viewed(function, argument)) return;
    if (auto* const calls = unit_calls_of(tensor)) calls->note_read(tensor, function.name());
  };
  std::size_t argument = 0;
  for (const auto& input : function.inputs()) {
    if (input.isTensor()) check(input.toTensor(), argument);
    if (input.isTensorList()) {
      for (const torch::Tensor& tensor : input.toTensorVector()) check(tensor, argument);
    }
    ++argument;
  }
  return nullptr;
}

#ifdef NDEBUG
constexpr bool kHasLayoutOfLibtorch = true;
#else
constexpr bool kHasLayoutOfLibtorch = false;
#endif

at::CallbackHandle watch() {
  if (!kHasLayoutOfLibtorch) return 0;
  return at::addThreadLocalCallback(at::RecordFunctionCallback(&check_reads)
                                        .needsInputs(true)
                                        .scopes({at::RecordScope::FUNCTION}));
}

}  // namespace

ReadCheck::ReadCheck() : handle_(watch()) {}

ReadCheck::~ReadCheck() {
  if (handle_ != 0) at::removeCallback(handle_);
}

}  // namespace ddp
