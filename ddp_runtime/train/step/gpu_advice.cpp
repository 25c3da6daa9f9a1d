// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/gpu_advice.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/errors.h"

namespace ddp::train {
namespace {

// How much was requested, is free, and is reserved. libtorch adds a link to its documentation.
std::string numbers_of(const c10::Error& error) {
  std::string_view text = error.what_without_backtrace();
  text = text.substr(0, text.find("See documentation"));
  const auto end = text.find_last_not_of(" .\n");
  return std::string(text.substr(0, end == std::string_view::npos ? 0 : end + 1));
}

}  // namespace

void throw_with_gpu_advice(const c10::Error& error) {
  const std::string_view text = error.what_without_backtrace();
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    throw RuntimeError(fmt::format(
        "{}. A smaller --batch with a larger --accumulate needs less memory; so do --param-type "
        "bf16 with --precision bf16, and --checkpoint-activations with gpt",
        numbers_of(error)));
  }
  if (text.find("no kernel image is available") != std::string_view::npos) {
    throw UsageError(
        "this GPU is too old or too new for the PyTorch of this program, which has no code for it "
        "(no kernel image is available); install a PyTorch that supports the GPU, or use --device "
        "cpu");
  }
}

}  // namespace ddp::train
