// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "base/errors.h"
#include "ddp_runtime/data/gzip_file.h"
#include "ddp_runtime/data/readers.h"
#include "ddp_runtime/data/tensor_dataset.h"

namespace ddp::data {
namespace {

constexpr int kPixels = 64;
constexpr int kBrightest = 16;

// Appends the numbers of one line: 64 pixels, then the digit.
void parse_line(std::string_view line, std::vector<float>& pixels,
                std::vector<std::int64_t>& digits) {
  const char* at = line.data();
  const char* const end = line.data() + line.size();
  for (int column = 0; column <= kPixels; ++column) {
    int value = -1;
    const auto [next, error] = std::from_chars(at, end, value);
    const int most = column < kPixels ? kBrightest : 9;
    const bool separated = column == kPixels ? next == end : next != end && *next == ',';
    if (error != std::errc() || value < 0 || value > most || !separated) {
      throw RuntimeError(
          fmt::format("line {} is not 64 pixels from 0 to 16 and a digit", digits.size() + 1));
    }
    if (column < kPixels) {
      pixels.push_back(static_cast<float>(value) / kBrightest);
    } else {
      digits.push_back(value);
    }
    at = next + 1;
  }
}

}  // namespace

DataPair read_digits(const std::filesystem::path& file) {
  const auto contents = read_maybe_gzipped(file, std::size_t{64} << 20U);
  std::string_view text(reinterpret_cast<const char*>(contents.data()), contents.size());
  std::vector<float> pixels;
  std::vector<std::int64_t> digits;
  try {
    while (!text.empty()) {
      const std::size_t length = std::min(text.find('\n'), text.size());
      parse_line(text.substr(0, length), pixels, digits);
      text.remove_prefix(std::min(length + 1, text.size()));
    }
  } catch (const RuntimeError& e) {
    throw RuntimeError(fmt::format("{}: {}", file.string(), e.what()));
  }
  if (digits.size() < 10) {
    throw RuntimeError(fmt::format("{} holds only {} digits", file.string(), digits.size()));
  }
  const auto n = static_cast<std::int64_t>(digits.size());
  const auto inputs = torch::tensor(pixels).view({n, 1, 8, 8});
  const auto split = hold_out_a_tenth(inputs, torch::tensor(digits, torch::kInt64), 10);
  return {"digits", split.train, split.evaluation};
}

}  // namespace ddp::data
