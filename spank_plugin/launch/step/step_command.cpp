// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/step/step_command.h"

#include <algorithm>
#include <vector>

namespace ddp::launch {
namespace {

using Words = std::span<const std::string_view>;

constexpr std::size_t kMaxWords = 4096;
constexpr std::string_view kSeparators = " \t\n;|&()\"'`";

std::string_view base_name(std::string_view path) noexcept {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

// Returns the module that `python ...` runs, as in -m NAME, -um NAME and -W ignore -m NAME; empty
// if it runs a file, a string or nothing.
std::string_view python_module(Words command) noexcept {
  for (std::size_t i = 1; i < command.size(); ++i) {
    const auto word = command[i];
    if (word.size() < 2 || word.front() != '-') return "";  // the file, or "-"
    if (word[1] == '-') continue;
    for (std::size_t at = 1; at < word.size(); ++at) {
      if (word[at] == 'c') return "";
      const bool takes_argument = word[at] == 'm' || word[at] == 'W' || word[at] == 'X';
      if (!takes_argument) continue;
      const auto rest = word.substr(at + 1);
      if (rest.empty()) ++i;
      if (word[at] != 'm') break;
      return !rest.empty() ? rest : i < command.size() ? command[i] : "";
    }
  }
  return "";
}

// Returns the usual name of a launcher's program or module; empty if the command is not a launcher.
std::string_view launcher_of(Words command) noexcept {
  if (command.empty()) return "";
  const auto program = base_name(command[0]);
  if (program == "torchrun" || program == "deepspeed") return program;
  if (program == "accelerate") {
    return command.size() > 1 && command[1] == "launch" ? "accelerate launch" : "";
  }
  if (!program.starts_with("python")) return "";
  const auto module = python_module(command);
  if (module == "torch.distributed.run" || module == "torch.distributed.launch") return "torchrun";
  if (module == "accelerate.commands.launch") return "accelerate launch";
  return module == "deepspeed.launcher.runner" ? "deepspeed" : "";
}

// Splits arguments that are shell scripts into their words.
std::vector<std::string_view> words_inside(Words words) {
  std::vector<std::string_view> all;
  for (auto word : words) {
    while (!word.empty() && all.size() < kMaxWords) {
      const auto end = std::min(word.find_first_of(kSeparators), word.size());
      if (end != 0) all.push_back(word.substr(0, end));
      word.remove_prefix(std::min(end + 1, word.size()));
    }
  }
  return all;
}

// The option that overrides PET_NNODES for a launcher that reads it; empty if there is none.
std::string_view node_count_in(std::string_view launcher, Words options) noexcept {
  const bool is_accelerate = launcher == "accelerate launch";
  if (!is_accelerate && launcher != "torchrun") return "";
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (!is_accelerate && options[i] == "--standalone") return "1";
    const auto equals = std::min(options[i].find('='), options[i].size());
    const auto name = options[i].substr(0, equals);
    const bool counts_nodes =
        is_accelerate ? name == "--num_machines" || name == "--num-machines" : name == "--nnodes";
    if (!counts_nodes) continue;
    return equals < options[i].size() ? options[i].substr(equals + 1)
           : i + 1 < options.size()   ? options[i + 1]
                                      : std::string_view();
  }
  return "";
}

void take_node_count(std::string_view count, StepCommand& command) noexcept {
  const bool is_one = count == "1" || count == "1:1";
  command.is_for_each_node = command.is_for_each_node || is_one;
  command.may_lose_nodes = command.may_lose_nodes || is_range_of_nodes(count);
}

}  // namespace

bool is_range_of_nodes(std::string_view count) noexcept {
  const auto colon = count.find(':');
  return colon != count.npos && count.substr(0, colon) != count.substr(colon + 1);
}

bool is_torchrun(Words command) noexcept {
  return launcher_of(command) == "torchrun";
}

StepCommand read_step_command(Words words) {
  StepCommand command;
  command.is_torchrun = is_torchrun(words);
  const auto inside = words_inside(words);
  for (std::size_t i = 0; i < inside.size(); ++i) {
    const Words from_here = Words(inside).subspan(i);
    const auto launcher = launcher_of(from_here);
    if (launcher.empty()) continue;
    take_node_count(node_count_in(launcher, from_here), command);
    if (launcher == "torchrun") {
      command.mentions_torchrun = true;
    } else if (command.other_launcher.empty()) {
      command.other_launcher = launcher;
    }
  }
  return command;
}

}  // namespace ddp::launch
