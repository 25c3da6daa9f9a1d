// SPDX-License-Identifier: Apache-2.0
// The language of `--ddp=SPEC` and of the variable SLURM_DDP: comma-separated words and key=value
// pairs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ddp::launch {

// The way in which a step becomes a distributed job.
enum class Mode {
  off,        // nothing is set
  automatic,  // torchrun if the step starts it with one task per node, else rank
  rank,       // one task is one rank
  torchrun,   // one task per node is an agent that starts the ranks of its node
};

// The numbering of a step's tasks in RANK.
enum class Order {
  slurm,      // SLURM_PROCID
  packed,     // node by node in the order of SLURM's node list
  by_switch,  // packed, with the nodes of one switch next to each other
};

enum class ExplainFormat { table, json };
enum class Rendezvous { fixed, c10d };  // of torchrun; `fixed` is its "static", a keyword in C++
enum class GpuPolicy { keep, shared };  // shared: every task sees all GPUs of its node
enum class UcxPolicy { keep, bind };    // bind: each GPU uses its nearest RDMA port
enum class LocalRankMeaning { node, device };  // device: LOCAL_RANK is an index of visible GPUs
// Each task gets a guard that says why a rank failed, unless `off`.
enum class Watch {
  off,
  report,  // nothing more
  on,      // a rank that fails by itself ends the step
  end,     // so do ranks that stand still
};

// The source of OMP_NUM_THREADS: the CPUs of the task, none (it is not set), or a number.
struct ThreadPolicy {
  enum class Kind { automatic, off, count };
  Kind kind = Kind::automatic;
  std::uint32_t count = 0;  // for Kind::count

  bool operator==(const ThreadPolicy&) const = default;
};

// The contents of one SPEC. Items that it does not mention are empty.
struct Spec {
  std::optional<Mode> mode;
  std::optional<ExplainFormat> explain;  // show the plan instead of running the program
  std::optional<bool> verbose;
  std::optional<std::string> master_addr;
  std::optional<std::uint16_t> master_port;
  std::optional<std::string> addr_suffix;  // "i": rank 0's host node1 is reached as node1i
  std::optional<Order> order;
  std::optional<Rendezvous> rendezvous;
  std::optional<std::string> agents;      // of torchrun: "4", or "2:4" for two to four
  std::optional<std::uint32_t> restarts;  // of torchrun's workers
  std::optional<std::string> store;       // "HOST:PORT" of a store that no agent hosts
  std::optional<ThreadPolicy> threads;
  std::optional<GpuPolicy> gpus;
  std::optional<LocalRankMeaning> local_rank;
  std::optional<bool> tf_config;
  std::optional<std::string> fabric;  // off, auto, or the name of a preset
  std::optional<UcxPolicy> ucx;
  std::optional<Watch> watch;
  std::optional<std::uint32_t> watch_stall;  // seconds
};

// One item of the language, with its description for the help.
struct SpecItem {
  std::string_view name;
  std::string_view values;   // after "name="; empty for a word
  std::string_view meaning;  // one phrase
};

// Return all words, and all keys. The help, the messages and the tests of the manual pages use
// these lists.
std::span<const SpecItem> spec_words() noexcept;
std::span<const SpecItem> spec_keys() noexcept;

// Returns "auto, rank, ..., master_addr=HOST, ...".
std::string allowed_items();

// Parses a SPEC; an empty text gives an empty Spec. Throws LaunchError, which names the invalid
// item and lists the allowed ones. `where` names the origin of the text ("--ddp", "SLURM_DDP").
Spec parse_spec(std::string_view text, std::string_view where);

// Return the text of a value as parse_spec reads it: "rank", "packed", "off", ...
std::string_view word_for(Mode mode) noexcept;
std::string_view word_for(ExplainFormat format) noexcept;
std::string_view word_for(Order order) noexcept;
std::string_view word_for(Rendezvous rendezvous) noexcept;
std::string_view word_for(GpuPolicy policy) noexcept;
std::string_view word_for(LocalRankMeaning meaning) noexcept;
std::string_view word_for(UcxPolicy policy) noexcept;
std::string_view word_for(Watch watch) noexcept;
std::string_view word_for(bool value) noexcept;
std::string word_for(const ThreadPolicy& policy);

}  // namespace ddp::launch
