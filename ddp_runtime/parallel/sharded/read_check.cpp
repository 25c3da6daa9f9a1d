// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/read_check.h"

#include <torch/torch.h>

#include <memory>
#include <string_view>

#include "ddp_runtime/parallel/sharded/flat_shard.h"
#include "ddp_runtime/parallel/sharded/unit_calls.h"

namespace ddp {
namespace {

void check_read(const torch::Tensor& tensor, const char* reader) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) return;
  if (tensor.storage().data_ptr().get() != nullptr) return;
  if (auto* const calls = unit_calls_of(tensor)) calls->note_read(tensor, reader);
}

std::unique_ptr<at::ObserverContext> check_reads(const at::RecordFunction& function) {
  if (std::string_view(function.name()) == "aten::detach") return nullptr;  // reads nothing
  for (const auto& input : function.inputs()) {
    if (input.isTensor()) check_read(input.toTensor(), function.name());
    if (!input.isTensorList()) continue;
    for (const torch::Tensor& tensor : input.toTensorVector()) {
      check_read(tensor, function.name());
    }
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
