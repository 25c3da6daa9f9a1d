#include "spank_plugin/launch/spec.h"

#include "spank_plugin/launch/error.h"
#include "spank_plugin/launch/text.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kMaxSpecText = 4096;
constexpr std::string_view kAllowed =
    "auto, rank, off, explain, verbose, master_addr=HOST, master_port=PORT";

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
    return std::move(spec_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw LaunchError(std::string(where_) + ": " + what);
  }

  // Sets a field that must not have been set before by the same SPEC.
  template <typename T, typename Value>
  void set(std::optional<T>& field, Value value, std::string_view item) {
    if (field) fail("more than one " + std::string(item));
    field = std::move(value);
  }

  void read_word(std::string_view word) {
    if (word == "auto" || word == "rank") return set(spec_.mode, Mode::rank, "mode");
    if (word == "off") return set(spec_.mode, Mode::off, "mode");
    if (word == "explain") return set(spec_.explain, true, word);
    if (word == "verbose") return set(spec_.verbose, true, word);
    if (word == "torchrun") {
      fail(
          "the mode torchrun (one task per node) is not available yet; use rank, with one task "
          "per rank, e.g. srun --ddp --ntasks-per-node=8 python train.py");
    }
    fail("unknown item " + in_quotes(word) + " (allowed: " + std::string(kAllowed) + ")");
  }

  void read_pair(std::string_view key, std::string_view value) {
    if (key == "master_addr") {
      if (!is_host_or_address(value))
        fail("master_addr=" + in_quotes(value) + " is no host name or address");
      return set(spec_.master_addr, std::string(value), key);
    }
    if (key == "master_port") {
      const auto port = parse_decimal(value, 65'535);
      if (!port || *port == 0) fail("master_port=" + in_quotes(value) + " is no port (1 to 65535)");
      return set(spec_.master_port, static_cast<std::uint16_t>(*port), key);
    }
    if (key == "verbose") {
      if (value != "yes" && value != "no")
        fail("verbose=" + in_quotes(value) + " is neither yes nor no");
      return set(spec_.verbose, value == "yes", key);
    }
    fail("unknown key " + in_quotes(key) + " (allowed: " + std::string(kAllowed) + ")");
  }

  std::string_view where_;
  Spec spec_;
};

}  // namespace

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

}  // namespace ddp::launch
