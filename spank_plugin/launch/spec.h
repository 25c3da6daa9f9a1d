#pragma once
// The text of `--ddp=SPEC` (and of the variable SLURM_DDP): comma-separated words and key=value.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::launch {

// How a step is turned into a distributed job.
enum class Mode {
  off,   // nothing is set
  rank,  // one task is one rank
};

// What one SPEC asks for; what it does not mention is empty.
struct Spec {
  std::optional<Mode> mode;
  std::optional<bool> explain;  // show the plan instead of running the program
  std::optional<bool> verbose;
  std::optional<std::string> master_addr;
  std::optional<std::uint16_t> master_port;
};

// Words: auto, rank, torchrun, off, explain, verbose. Keys: master_addr, master_port, verbose.
// "auto" is the best mode for the step; rank is the only one so far. An empty text is an empty
// Spec. Throws LaunchError, which names the offending item and lists what is allowed. `where` says
// where the text comes from ("--ddp", "SLURM_DDP").
Spec parse_spec(std::string_view text, std::string_view where);

}  // namespace ddp::launch
