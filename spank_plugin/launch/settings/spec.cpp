// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/settings/spec.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/duration.h"
#include "base/text.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/text.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kMaxSpecText = 4096;
constexpr std::uint32_t kMaxThreads = 65'536;
constexpr std::uint32_t kMaxAgents = 65'536;
constexpr std::uint32_t kMaxRestarts = 1'000'000;

constexpr std::array<SpecItem, 8> kWords = {{
    {"auto", "", "torchrun if the step starts it with one task per node; otherwise rank"},
    {"rank", "", "one task is one rank"},
    {"torchrun", "", "one task per node is torchrun, which then needs no options"},
    {"off", "", "set nothing"},
    {"explain", "", "show each variable with its source and rule, and run nothing"},
    {"verbose", "", "a line per task; with explain the whole plan of every task"},
    {"tf_config", "", "set TF_CONFIG, for TensorFlow"},
    {"watch", "",
     "say which rank failed and why, and end the others; or that all hang, and where they stand"},
}};

constexpr std::array<SpecItem, 18> kKeys = {{
    {"master_addr", "HOST", "MASTER_ADDR"},
    {"master_port", "PORT", "MASTER_PORT"},
    {"addr_suffix", "SUFFIX", "suffix of the node's name on its fast network, such as i or -ib"},
    {"order", "slurm|packed|switch",
     "number ranks as SLURM does; or node by node; or so that neighbors share a switch"},
    {"threads", "auto|off|N",
     "set OMP_NUM_THREADS from the CPUs of the task; or leave it unset; or set it to N"},
    {"gpus", "keep|shared", "each task sees the GPUs that SLURM gives it, or all GPUs of its node"},
    {"local_rank", "node|device",
     "LOCAL_RANK is the number of the task on its node, or the index of a visible GPU"},
    {"rdzv", "static|c10d", "how torchrun's agents find each other"},
    {"nnodes", "N|MIN:MAX", "nodes of torchrun; a range lets nodes leave and join"},
    {"restarts", "N", "how often torchrun starts its workers again"},
    {"store", "HOST:PORT",
     "a running store for torchrun's agents, so that the run outlives the agent of rank 0"},
    {"fabric", "auto|off|NAME",
     "set NCCL's and Gloo's interfaces if they would choose wrong ones; or set none; or use a "
     "preset"},
    {"ucx", "keep|bind", "UCX chooses by itself, or each GPU gets its nearest RDMA port"},
    {"explain", "table|json", "explain in this format"},
    {"verbose", "yes|no", "a line per task"},
    {"tf_config", "yes|no", "set TF_CONFIG"},
    {"watch", "on|report|end|off",
     "watch the ranks; or end nothing; or end also ranks that hang; or do not watch"},
    {"watch_stall", "DURATION",
     "how long no rank makes progress until that is said (60s; with watch=end, 10min)"},
}};

template <typename T>
struct Word {
  std::string_view text;
  T value;
};

constexpr std::array<Word<Mode>, 4> kModes = {{{"auto", Mode::automatic},
                                               {"rank", Mode::rank},
                                               {"torchrun", Mode::torchrun},
                                               {"off", Mode::off}}};
constexpr std::array<Word<Order>, 3> kOrders = {
    {{"slurm", Order::slurm}, {"packed", Order::packed}, {"switch", Order::by_switch}}};
constexpr std::array<Word<ExplainFormat>, 2> kFormats = {
    {{"table", ExplainFormat::table}, {"json", ExplainFormat::json}}};
constexpr std::array<Word<Rendezvous>, 2> kRendezvous = {
    {{"static", Rendezvous::fixed}, {"c10d", Rendezvous::c10d}}};
constexpr std::array<Word<GpuPolicy>, 2> kGpuPolicies = {
    {{"keep", GpuPolicy::keep}, {"shared", GpuPolicy::shared}}};
constexpr std::array<Word<LocalRankMeaning>, 2> kLocalRanks = {
    {{"node", LocalRankMeaning::node}, {"device", LocalRankMeaning::device}}};
constexpr std::array<Word<UcxPolicy>, 2> kUcxPolicies = {
    {{"keep", UcxPolicy::keep}, {"bind", UcxPolicy::bind}}};
constexpr std::array<Word<Watch>, 4> kWatches = {
    {{"on", Watch::on}, {"report", Watch::report}, {"end", Watch::end}, {"off", Watch::off}}};
constexpr std::array<Word<bool>, 2> kBooleans = {{{"yes", true}, {"no", false}}};

template <typename T, std::size_t N>
std::optional<T> value_of(const std::array<Word<T>, N>& words, std::string_view text) noexcept {
  for (const auto& word : words) {
    if (word.text == text) return word.value;
  }
  return std::nullopt;
}

template <typename T, std::size_t N>
std::string_view text_of(const std::array<Word<T>, N>& words, T value) noexcept {
  for (const auto& word : words) {
    if (word.value == value) return word.text;
  }
  return "";
}

// Reads one SPEC into a Spec, item by item.
class SpecReader {
 public:
  explicit SpecReader(std::string_view where) : where_(where) {}

  void read(std::string_view item) {
    const auto equals = item.find('=');
    if (equals == std::string_view::npos) return read_word(item);
    read_pair(item.substr(0, equals), item.substr(equals + 1));
  }

  Spec take() {
    if (spec_.mode == Mode::off && spec_.explain) fail("off and explain exclude each other");
    if (spec_.rendezvous == Rendezvous::fixed && (spec_.store || is_range(spec_.agents))) {
      fail("rdzv=static excludes store=HOST:PORT and a range of nodes; leave it out");
    }
    return std::move(spec_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw LaunchError(std::string(where_) + ": " + what);
  }

  // Sets a field, which the same SPEC must not have set before.
  template <typename T, typename Value>
  void set(std::optional<T>& field, Value value, std::string_view item) {
    if (field) fail("more than one " + std::string(item));
    field = std::move(value);
  }

  template <typename T, std::size_t N>
  void set_word(std::optional<T>& field, const std::array<Word<T>, N>& words, std::string_view key,
                std::string_view text) {
    const auto value = value_of(words, text);
    if (!value) {
      std::string allowed;
      for (const auto& word : words)
        allowed += (allowed.empty() ? "" : ", ") + std::string(word.text);
      fail(std::string(key) + "=" + quote_for_display(text) + " is not one of " + allowed);
    }
    set(field, *value, key);
  }

  void read_word(std::string_view word) {
    if (const auto mode = value_of(kModes, word)) return set(spec_.mode, *mode, "mode");
    if (word == "explain") return set(spec_.explain, ExplainFormat::table, word);
    if (word == "verbose") return set(spec_.verbose, true, word);
    if (word == "tf_config") return set(spec_.tf_config, true, word);
    if (word == "watch") return set(spec_.watch, Watch::on, word);
    fail("unknown item " + quote_for_display(word) + " (allowed: " + allowed_items() + ")");
  }

  void read_pair(std::string_view key, std::string_view value) {
    if (key == "master_addr") return read_address(value);
    if (key == "master_port") return read_port(value);
    if (key == "addr_suffix") return read_suffix(value);
    if (key == "order") return set_word(spec_.order, kOrders, key, value);
    if (key == "threads") return read_threads(value);
    if (key == "gpus") return set_word(spec_.gpus, kGpuPolicies, key, value);
    if (key == "local_rank") return set_word(spec_.local_rank, kLocalRanks, key, value);
    if (key == "rdzv") return set_word(spec_.rendezvous, kRendezvous, key, value);
    if (key == "nnodes") return read_agents(value);
    if (key == "restarts") return read_restarts(value);
    if (key == "store") return read_store(value);
    if (key == "fabric") return read_fabric(value);
    if (key == "ucx") return set_word(spec_.ucx, kUcxPolicies, key, value);
    if (key == "explain") return set_word(spec_.explain, kFormats, key, value);
    if (key == "verbose") return set_word(spec_.verbose, kBooleans, key, value);
    if (key == "tf_config") return set_word(spec_.tf_config, kBooleans, key, value);
    if (key == "watch") return set_word(spec_.watch, kWatches, key, value);
    if (key == "watch_stall") return read_stall(value);
    fail("unknown key " + quote_for_display(key) + " (allowed: " + allowed_items() + ")");
  }

  void read_address(std::string_view value) {
    if (!is_given_host(value))
      fail("master_addr=" + quote_for_display(value) + " is not a host name or address");
    set(spec_.master_addr, std::string(value), "master_addr");
  }

  // An empty suffix cancels the site's.
  void read_suffix(std::string_view value) {
    const bool is_part_of_name =
        value.empty() || (value.size() <= 63 && is_host_or_address(value) &&
                          value.find_first_of(":%") == value.npos);
    if (!is_part_of_name)
      fail("addr_suffix=" + quote_for_display(value) + " is not part of a host name");
    set(spec_.addr_suffix, std::string(value), "addr_suffix");
  }

  void read_port(std::string_view value) {
    const auto port = parse_decimal(value, 65'535);
    if (!port || *port == 0)
      fail("master_port=" + quote_for_display(value) + " is not a port (1 to 65535)");
    set(spec_.master_port, static_cast<std::uint16_t>(*port), "master_port");
  }

  static bool is_range(const std::optional<std::string>& agents) noexcept {
    return agents && agents->find(':') != std::string::npos;
  }

  // Without leading zeros, as torchrun shows them.
  void read_agents(std::string_view value) {
    const auto colon = value.find(':');
    const auto fewest = parse_decimal(value.substr(0, colon), kMaxAgents);
    const auto most = colon == std::string_view::npos
                          ? fewest
                          : parse_decimal(value.substr(colon + 1), kMaxAgents);
    if (!fewest || !most || *fewest == 0 || *most < *fewest) {
      fail("nnodes=" + quote_for_display(value) + " is neither a number of nodes nor MIN:MAX");
    }
    auto text = std::to_string(*fewest);
    if (colon != std::string_view::npos) text.append(":").append(std::to_string(*most));
    set(spec_.agents, std::move(text), "nnodes");
  }

  void read_restarts(std::string_view value) {
    const auto count = parse_decimal(value, kMaxRestarts);
    if (!count) fail("restarts=" + quote_for_display(value) + " is not 0, 1, 2, ...");
    set(spec_.restarts, static_cast<std::uint32_t>(*count), "restarts");
  }

  void read_stall(std::string_view value) {
    const auto seconds = parse_duration(value);
    if (!seconds || *seconds < 1) {
      fail("watch_stall=" + quote_for_display(value) +
           " is not a duration of at least 1s, such as 90s or 10min");
    }
    set(spec_.watch_stall, static_cast<std::uint32_t>(std::lround(*seconds)), "watch_stall");
  }

  void read_store(std::string_view value) {
    const auto colon = value.rfind(':');
    const bool has_port = colon != std::string_view::npos;
    const auto port = has_port ? parse_decimal(value.substr(colon + 1), 65'535) : std::nullopt;
    auto host = value.substr(0, has_port ? colon : 0);
    const bool in_brackets = host.starts_with('[') && host.ends_with(']');
    if (in_brackets) host = host.substr(1, host.size() - 2);
    const bool is_v6 = host.find(':') != std::string_view::npos;
    if (!port || *port == 0 || !is_given_host(host) || is_v6 != in_brackets) {
      fail("store=" + quote_for_display(value) + " is not HOST:PORT");
    }
    set(spec_.store, std::string(value), "store");
  }

  // The nodes check that the preset exists, because they have the site's file.
  void read_fabric(std::string_view value) {
    if (value.size() > 64 || !is_host_or_address(value))
      fail("fabric=" + quote_for_display(value) + " is not auto, off, or the name of a preset");
    set(spec_.fabric, std::string(value), "fabric");
  }

  void read_threads(std::string_view value) {
    using Kind = ThreadPolicy::Kind;
    if (value == "auto") return set(spec_.threads, ThreadPolicy{Kind::automatic, 0}, "threads");
    if (value == "off") return set(spec_.threads, ThreadPolicy{Kind::off, 0}, "threads");
    const auto count = parse_decimal(value, kMaxThreads);
    if (!count || *count == 0)
      fail("threads=" + quote_for_display(value) + " is not auto, off, 1, 2, ...");
    set(spec_.threads, ThreadPolicy{Kind::count, static_cast<std::uint32_t>(*count)}, "threads");
  }

  std::string_view where_;
  Spec spec_;
};

}  // namespace

std::span<const SpecItem> spec_words() noexcept {
  return kWords;
}

std::span<const SpecItem> spec_keys() noexcept {
  return kKeys;
}

std::string allowed_items() {
  std::string list;
  for (const auto& word : kWords) list += std::string(word.name) + ", ";
  for (const auto& key : kKeys)
    list += std::string(key.name) + "=" + std::string(key.values) + ", ";
  list.resize(list.size() - 2);
  return list;
}

Spec parse_spec(std::string_view text, std::string_view where) {
  if (text.size() > kMaxSpecText) {
    throw LaunchError(std::string(where) + ": longer than " + std::to_string(kMaxSpecText) +
                      " characters");
  }
  SpecReader reader(where);
  if (!text.empty()) {
    for (const auto item : split(text, ',')) reader.read(item);
  }
  return reader.take();
}

std::string_view word_for(Mode mode) noexcept {
  return text_of(kModes, mode);
}
std::string_view word_for(ExplainFormat format) noexcept {
  return text_of(kFormats, format);
}
std::string_view word_for(Order order) noexcept {
  return text_of(kOrders, order);
}
std::string_view word_for(Rendezvous rendezvous) noexcept {
  return text_of(kRendezvous, rendezvous);
}
std::string_view word_for(GpuPolicy policy) noexcept {
  return text_of(kGpuPolicies, policy);
}
std::string_view word_for(LocalRankMeaning meaning) noexcept {
  return text_of(kLocalRanks, meaning);
}
std::string_view word_for(UcxPolicy policy) noexcept {
  return text_of(kUcxPolicies, policy);
}
std::string_view word_for(Watch watch) noexcept {
  return text_of(kWatches, watch);
}
std::string_view word_for(bool value) noexcept {
  return text_of(kBooleans, value);
}

std::string word_for(const ThreadPolicy& policy) {
  switch (policy.kind) {
    case ThreadPolicy::Kind::automatic:
      return "auto";
    case ThreadPolicy::Kind::off:
      return "off";
    case ThreadPolicy::Kind::count:
      break;
  }
  return std::to_string(policy.count);
}

}  // namespace ddp::launch
