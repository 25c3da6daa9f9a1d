// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/stack_place.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/text.h"

namespace ddp::watch {
namespace {

constexpr std::size_t kMaxName = 27;  // of a file or a function

// A line of a stack: `  File "/home/user/train.py", line 88 in step`.
struct Frame {
  std::string_view file;
  std::uint32_t line = 0;
  std::string_view function;
};

std::optional<Frame> parse_frame(std::string_view text) {
  constexpr std::string_view kFile = "  File \"";
  constexpr std::string_view kLine = "\", line ";
  constexpr std::string_view kIn = " in ";
  const auto middle = text.rfind(kLine);
  if (!text.starts_with(kFile) || middle == text.npos || middle < kFile.size()) return {};
  const auto rest = text.substr(middle + kLine.size());
  const auto in = rest.find(kIn);
  const auto line = parse_decimal(rest.substr(0, in));
  if (in == rest.npos || !line) return {};
  return Frame{text.substr(kFile.size(), middle - kFile.size()), *line,
               rest.substr(in + kIn.size())};
}

bool is_own(const Frame& frame) noexcept {
  constexpr auto kInstalled = std::to_array<std::string_view>(
      {"/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3"});
  if (frame.file.starts_with('<')) return frame.file == "<string>" || frame.file == "<stdin>";
  return std::ranges::none_of(
      kInstalled, [&frame](auto part) { return frame.file.find(part) != frame.file.npos; });
}

// Functions that only call what the program has called.
bool is_wrapper(const Frame& frame) noexcept {
  constexpr auto kNames =
      std::to_array<std::string_view>({"wrapper", "inner", "wrapped", "decorate_context"});
  return std::ranges::find(kNames, frame.function) != kNames.end();
}

// Printable, and without its middle if it is long: names often differ at their ends.
std::string shortened(std::string_view name) {
  constexpr std::size_t kHalf = (kMaxName - 3) / 2;
  if (name.size() <= kMaxName) return sanitize(name);
  return sanitize(name.substr(0, kHalf)) + "..." + sanitize(name.substr(name.size() - kHalf));
}

std::string_view name_of(const Frame& frame) noexcept {
  return frame.file.substr(frame.file.rfind('/') + 1);
}

std::string place_of(const Frame& frame) {
  std::string text = shortened(name_of(frame)) + ":" + std::to_string(frame.line);
  if (frame.function != "<module>") text += " in " + shortened(frame.function);
  return text;
}

std::string call_of(const Frame& frame) {
  std::string_view module = name_of(frame);
  if (module.ends_with(".py")) module.remove_suffix(3);
  return shortened(module) + "." + shortened(frame.function);
}

// The innermost one first.
std::vector<Frame> frames_of_stack(std::string_view text) {
  constexpr std::size_t kMaxLines = 20'000;
  constexpr std::string_view kHead = " (most recent call first):";
  std::vector<Frame> frames;
  for (const auto line : split(text, '\n', kMaxLines)) {
    if (line.ends_with(kHead)) frames.clear();
    if (const auto frame = parse_frame(line)) frames.push_back(*frame);
  }
  return frames;
}

}  // namespace

std::string place_in_stacks(std::string_view text) {
  const auto frames = frames_of_stack(text);
  if (frames.empty()) return "";
  const auto own = std::ranges::find_if(frames, is_own);
  if (own == frames.end()) return place_of(frames.front());
  std::string place = place_of(*own);
  auto call = own;
  while (call != frames.begin() && is_wrapper(*std::prev(call))) --call;
  if (call != frames.begin()) place += " (" + call_of(*std::prev(call)) + ")";
  return place;
}

}  // namespace ddp::watch
