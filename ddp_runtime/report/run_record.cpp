#include "ddp_runtime/report/run_record.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "ddp_runtime/report/error.h"

namespace ddp::report {
namespace {

using nlohmann::json;

constexpr std::uintmax_t kMostBytes = std::uintmax_t{64} << 20;
constexpr std::size_t kMostText = 4096;
constexpr std::size_t kMostRanks = 65536;
constexpr std::size_t kMostProblemsTold = 8;
constexpr const char* kSchema = "slurm-ddp/run/1";

using Problems = std::vector<std::string>;

// One object of the file. What is missing or wrong is noted, not thrown, so that all of it can be
// told at once.
class Reader {
 public:
  Reader(const json& object, std::string prefix, Problems& problems)
      : object_(object), prefix_(std::move(prefix)), problems_(problems) {}

  // A whole number of at least 1.
  int count(const char* key) {
    const json* value = required(key);
    if (value == nullptr) return 1;
    if (value->is_number_integer() && *value >= 1 && *value <= 1'000'000'000) {
      return value->get<int>();
    }
    wrong(key, "is not a whole number of at least 1");
    return 1;
  }

  std::optional<double> number(const char* key) { return as_number(key, required(key)); }
  std::optional<double> number_if_there(const char* key) {
    const auto found = object_.find(key);
    return found == object_.end() ? std::nullopt : as_number(key, &*found);
  }

  // Null stands for an unknown word.
  std::string text(const char* key) { return as_text(key, required(key)); }
  std::string text_if_there(const char* key) {
    const auto found = object_.find(key);
    return found == object_.end() ? std::string() : as_text(key, &*found);
  }

  // An object below; an empty one if there is none.
  Reader object(const char* key) {
    static const json kNothing = json::object();
    const json* value = required(key);
    const std::string inner = prefix_ + key + ".";
    if (value == nullptr) return {kNothing, inner, *scratch()};
    if (value->is_object()) return {*value, inner, problems_};
    wrong(key, "is not an object");
    return {kNothing, inner, *scratch()};
  }

  const json* list(const char* key, std::size_t most) {
    const json* value = required(key);
    if (value == nullptr) return nullptr;
    if (value->is_array() && value->size() <= most) return value;
    wrong(key, fmt::format("is not a list of at most {} entries", most));
    return nullptr;
  }

  const json& raw() const { return object_; }
  void wrong(const std::string& key, const std::string& what) {
    problems_.push_back(fmt::format("'{}{}' {}", prefix_, key, what));
  }

 private:
  const json* required(const char* key) {
    const auto found = object_.find(key);
    if (found != object_.end()) return &*found;
    wrong(key, "is missing");
    return nullptr;
  }

  std::optional<double> as_number(const char* key, const json* value) {
    if (value == nullptr || value->is_null()) return std::nullopt;
    if (!value->is_number()) {
      wrong(key, "is not a number");
      return std::nullopt;
    }
    const auto number = value->get<double>();
    return std::isfinite(number) ? std::optional(number) : std::nullopt;
  }

  std::string as_text(const char* key, const json* value) {
    if (value == nullptr || value->is_null()) return {};
    if (value->is_string() && value->get_ref<const std::string&>().size() <= kMostText) {
      return value->get<std::string>();
    }
    wrong(key, fmt::format("is not a text of at most {} bytes", kMostText));
    return {};
  }

  // Keys below an object that is missing are not missing as well.
  Problems* scratch() { return &scratch_; }

  const json& object_;
  std::string prefix_;
  Problems& problems_;
  Problems scratch_;
};

StepSeconds read_step_seconds(Reader reader) {
  StepSeconds step;
  step.p50 = reader.number("p50");
  step.p95 = reader.number("p95");
  step.mean = reader.number_if_there("mean");
  double sum = 0;
  bool any = false;
  for (const auto& [phase, key, name, brief] : kPhaseNames) {
    auto& part = step.parts[index_of(phase)];
    part = reader.number(std::string(key).c_str());
    if (part && *part < 0) reader.wrong(std::string(key), "is negative");
    any = any || part.has_value();
    sum += part.value_or(0);
  }
  if (!step.mean && any) step.mean = sum;
  return step;
}

std::vector<RankRecord> read_ranks(Reader& reader, Problems& problems) {
  std::vector<RankRecord> ranks;
  const json* list = reader.list("ranks", kMostRanks);
  if (list == nullptr) return ranks;
  for (const auto& entry : *list) {
    if (!entry.is_object()) {
      reader.wrong("ranks", "has an entry that is not an object");
      break;
    }
    Reader rank(entry, fmt::format("ranks[{}].", ranks.size()), problems);
    RankRecord record;
    record.rank = static_cast<int>(rank.number("rank").value_or(0));
    record.node = rank.text("node");
    record.step = read_step_seconds(rank.object("step_seconds"));
    ranks.push_back(std::move(record));
  }
  return ranks;
}

std::map<std::string, std::string> read_environment(const Reader& reader) {
  std::map<std::string, std::string> environment;
  for (const auto& [name, value] : reader.raw().items()) {
    if (value.is_string()) {
      environment[name.substr(0, kMostText)] = value.get<std::string>().substr(0, kMostText);
    } else if (value.is_primitive()) {
      environment[name.substr(0, kMostText)] = value.dump();  // never of something nested
    }
  }
  return environment;
}

RunRecord read_fields(Reader& reader, Problems& problems) {
  RunRecord run;
  run.program = reader.text_if_there("program");
  run.command = reader.text_if_there("command");
  run.started_unix = reader.number_if_there("started_unix");
  run.world_size = reader.count("world_size");
  run.nodes = reader.count("nodes");
  run.backend = reader.text("backend");
  run.device = reader.text("device");
  run.model = reader.text("model");
  run.data = reader.text("data");
  run.parameters = reader.number("parameters");
  run.global_batch = reader.number("global_batch");
  run.steps = reader.number("steps");
  run.samples_per_second = reader.number("samples_per_second");
  Reader final_values = reader.object("final");
  run.train_loss = final_values.number("train_loss");
  run.eval_loss = final_values.number("eval_loss");
  run.eval_accuracy = final_values.number("eval_accuracy");
  run.parameters_crc32c = reader.text("parameters_crc32c");
  run.step = read_step_seconds(reader.object("step_seconds"));
  Reader comm = reader.object("comm");
  run.bytes_per_step = comm.number("bytes_per_step");
  run.busbw_GBps = comm.number("busbw_GBps");
  run.overlap_ratio = comm.number("overlap_ratio");
  run.ranks = read_ranks(reader, problems);
  run.environment = read_environment(reader.object("environment"));
  return run;
}

std::string read_text(const std::filesystem::path& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (error) throw InputError(fmt::format("cannot read {}: {}", file.string(), error.message()));
  if (size > kMostBytes) {
    throw InputError(fmt::format("{} has {} bytes, which no run.json has", file.string(), size));
  }
  std::ifstream stream(file, std::ios::binary);
  std::string text(size, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(size));
  if (!stream) throw InputError(fmt::format("cannot read {}", file.string()));
  return text;
}

void require_none(const Problems& problems, const std::string& source) {
  if (problems.empty()) return;
  const std::size_t told = std::min(problems.size(), kMostProblemsTold);
  std::string text =
      fmt::format("{}: {}", source,
                  fmt::join(problems.begin(), problems.begin() + static_cast<long>(told), "; "));
  if (told < problems.size()) text += fmt::format("; and {} more", problems.size() - told);
  throw InputError(text);
}

}  // namespace

std::optional<double> StepSeconds::unaccounted() const {
  if (!mean) return std::nullopt;
  double rest = *mean;
  for (const auto& part : parts) rest -= part.value_or(0);
  return std::abs(rest) > 0.01 * std::abs(*mean) ? std::optional(rest) : std::nullopt;
}

RunRecord parse_run(std::string_view text, const std::string& source) {
  json document;
  try {
    document = json::parse(text);
  } catch (const json::exception& error) {
    throw InputError(fmt::format("{} is not JSON: {}", source, error.what()));
  }
  if (!document.is_object()) throw InputError(source + " is not a JSON object");
  Problems problems;
  Reader reader(document, "", problems);
  if (const auto schema = reader.text("schema"); problems.empty() && schema != kSchema) {
    throw InputError(fmt::format("{} has the schema '{}', not {}", source, schema, kSchema));
  }
  RunRecord run = read_fields(reader, problems);
  require_none(problems, source);
  run.source = source;
  return run;
}

RunRecord read_run(const std::string& path) {
  std::error_code error;
  const bool is_directory = std::filesystem::is_directory(path, error);
  const auto file =
      is_directory ? std::filesystem::path(path) / "run.json" : std::filesystem::path(path);
  if (!std::filesystem::exists(file, error)) {
    throw InputError(is_directory
                         ? fmt::format("{} has no run.json; give the --report-dir of a run", path)
                         : fmt::format("{} does not exist", path));
  }
  RunRecord run = parse_run(read_text(file), file.string());
  run.source = path;
  return run;
}

}  // namespace ddp::report
