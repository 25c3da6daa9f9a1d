// SPDX-License-Identifier: Apache-2.0
// A text as bytes: each sample is a window of `context` bytes, and the target of each byte is the
// byte that follows it. Windows do not overlap, so every byte is a target once per epoch (except
// for less than a window at the end).
#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "ddp_runtime/data/positioned_file.h"
#include "ddp_runtime/data/readers.h"

namespace ddp::data {
namespace {

constexpr std::int64_t kBytes = 256;  // vocabulary size

class TextWindows final : public Dataset {
 public:
  // The bytes [first, last) of `file`.
  TextWindows(std::shared_ptr<const PositionedFile> file, std::int64_t first, std::int64_t last,
              std::int64_t context)
      : file_(std::move(file)), first_(first), last_(last), context_(context) {}

  // The last byte is only a target.
  std::int64_t size() const override {
    return std::max<std::int64_t>(last_ - first_ - 1, 0) / context_;
  }
  SampleShape shape() const override { return {{context_}, kBytes, true}; }

  Batch get(std::span<const std::int64_t> indices) const override {
    const auto n = static_cast<std::int64_t>(indices.size());
    const auto options = torch::TensorOptions(torch::kInt64);
    Batch batch{torch::empty({n, context_}, options), torch::empty({n, context_}, options)};
    std::int64_t* inputs = batch.inputs.data_ptr<std::int64_t>();
    std::int64_t* targets = batch.targets.data_ptr<std::int64_t>();
    std::vector<unsigned char> window(static_cast<std::size_t>(context_ + 1));
    for (const std::int64_t index : indices) {
      file_->read(window, first_ + index * context_);
      inputs = std::copy(window.begin(), window.end() - 1, inputs);
      targets = std::copy(window.begin() + 1, window.end(), targets);
    }
    return batch;
  }

 private:
  std::shared_ptr<const PositionedFile> file_;
  std::int64_t first_;
  std::int64_t last_;
  std::int64_t context_;
};

}  // namespace

DataPair read_text(const std::filesystem::path& path, std::int64_t context) {
  auto file = std::make_shared<const PositionedFile>(path);
  // The evaluation part is the end of the text: windows spread over the whole text would border on
  // training text.
  const std::int64_t size = file->size();
  const std::int64_t border = size - size / 10;
  auto train = std::make_shared<const TextWindows>(file, 0, border, context);
  auto evaluation = std::make_shared<const TextWindows>(file, border, size, context);
  if (evaluation->size() == 0) {
    throw UsageError(
        fmt::format("{} holds {} bytes; a context of {} needs {:.0f} or more, a tenth of which is "
                    "held out: give a longer text or a smaller --context",
                    path.string(), size, context, 10 * (static_cast<double>(context) + 1)));
  }
  return {"text:" + path.string(), std::move(train), std::move(evaluation)};
}

}  // namespace ddp::data
