// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt convert: converts arrays to and from files of other programs, piece by piece, so that
// memory use does not grow with the file.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/tools/ckpt/commands.h"
#include "ddp_runtime/tools/ckpt/paths.h"
#include "ddp_runtime/tools/ckpt/spool.h"
#include "ddp_runtime/tools/ckpt/text.h"
#include "hdf5_ckpt/checkpoint_directory.h"
#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/file_kind.h"
#include "hdf5_ckpt/convert/foreign_file.h"
#include "hdf5_ckpt/convert/name_pattern.h"
#include "hdf5_ckpt/convert/name_prefix.h"
#include "hdf5_ckpt/error.h"

namespace ddp::ckpt::tool {
namespace {

namespace fs = std::filesystem;

// Bytes of an array that are read at a time, and the limit for the additional buffers of the
// threads.
constexpr std::uint64_t kPieceBytes = 16ULL << 20;

constexpr const char* kWholeModel =
    "; save the state_dict() of the model in Python: torch.save(torch.load('FILE', "
    "weights_only=False).state_dict(), 'NEW.pt'), if you trust the file, because this runs code in "
    "it";

// The arrays that --only, --skip and a prefix choose.
class Choice {
 public:
  explicit Choice(const Conversion& conversion)
      : only_(parse_patterns(conversion.only)), skip_(parse_patterns(conversion.skip)) {}

  bool takes(const std::string& name) const {
    return (only_.empty() || any_matches(only_, name)) && !any_matches(skip_, name);
  }

  // Throws UsageError if a pattern matches none of the names, which is a mistake in it.
  void require_effect(const std::vector<std::string>& names) const {
    for (const auto& [option, patterns] : {std::pair("--only", &only_), {"--skip", &skip_}})
      for (const NamePattern& pattern : *patterns)
        if (std::none_of(names.begin(), names.end(),
                         [&](const std::string& name) { return pattern.matches(name); }))
          throw UsageError(fmt::format("{}: '{}' matches no array; ddp-ckpt inspect lists them",
                                       option, pattern.text()));
  }

 private:
  std::vector<NamePattern> only_;
  std::vector<NamePattern> skip_;
};

// "a,b" for --skip.
std::string list_of(const std::vector<Omission>& arrays) {
  constexpr std::size_t kMaxListed = 20;
  std::string list;
  for (std::size_t i = 0; i < std::min(arrays.size(), kMaxListed); ++i)
    list += (i == 0 ? "" : ",") + sanitize(arrays[i].name);
  return list + (arrays.size() > kMaxListed ? ",..." : "");
}

// Keeps the chosen arrays. Those that cannot be read must be left out explicitly, because a model
// without them is incomplete.
FileContents chosen_of(const ForeignFile& file, const Choice& choice) {
  FileContents contents = file.contents();
  std::vector<std::string> names;
  for (const ExternalArray& array : contents.arrays) names.push_back(array.name);
  for (const Omission& one : contents.unreadable) names.push_back(one.name);
  choice.require_effect(names);
  std::erase_if(contents.arrays, [&](const auto& array) { return !choice.takes(array.name); });
  std::erase_if(contents.unreadable, [&](const auto& one) { return !choice.takes(one.name); });
  const std::string omitted = omissions_text(contents);
  if (!contents.unreadable.empty())
    throw UnsupportedError(fmt::format(
        "'{}' cannot be converted: {}; leave {} out with --skip {}", file.path().string(), omitted,
        contents.unreadable.size() == 1 ? "it" : "them", shell_word(list_of(contents.unreadable))));
  if (!contents.arrays.empty()) return contents;
  throw UnsupportedError(fmt::format("'{}' cannot be converted: it has no tensors{}{}{}",
                                     file.path().string(), omitted.empty() ? "" : "; ", omitted,
                                     contents.hidden_tensors == 0 ? "" : kWholeModel));
}

void say_what_became_of_values(const FileContents& content, TargetKind target) {
  if (!content.values.empty() && target == TargetKind::directory)
    fmt::print("stored {} numbers and texts as 'values' in the checkpoint's state\n",
               content.values.size());
  if (!content.values.empty() && target != TargetKind::directory)
    fmt::print("{} numbers and texts were left out: the file holds only arrays\n",
               content.values.size());
  FileContents others;
  others.left_out = content.left_out;
  if (const std::string text = omissions_text(others); !text.empty()) fmt::print("{}\n", text);
}

// The arrays to write, and their bytes.
struct Arrays {
  std::vector<ArrayHeader> headers;
  GiveBytes give;
};

void write(const fs::path& to, TargetKind kind, const Arrays& arrays) {
  std::uint64_t total = 0;
  for (const ArrayHeader& array : arrays.headers)
    total += byte_count(array.dtype, array.shape).value();
  const Progress progress = terminal_progress(to.filename().string());
  Meter meter(progress, total);
  const auto give = [&](std::size_t index, const TakeBytes& take) {
    arrays.give(index, [&](std::span<const std::byte> bytes) {
      take(bytes);
      meter.add(bytes.size());
    });
  };
  (kind == TargetKind::safetensors ? write_safetensors : write_torch_file)(to, arrays.headers,
                                                                           give);
}

// The names that start with the prefix, without it; by their places in `names`.
std::vector<std::pair<std::size_t, std::string>> without_prefix(
    const std::vector<std::string_view>& names, const std::string& typed, const fs::path& source) {
  const std::string prefix = prefix_in(typed, names);
  std::vector<std::pair<std::size_t, std::string>> chosen;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i].starts_with(prefix) && names[i].size() > prefix.size())
      chosen.emplace_back(i, names[i].substr(prefix.size()));
  if (chosen.empty())
    throw Error(
        fmt::format("'{}' has no array whose name starts with '{}'", source.string(), typed));
  return chosen;
}

// A run's checkpoints and converted ones do not belong together.
void require_unused(const fs::path& to) {
  std::error_code ignored;
  const bool owned = fs::exists(to / ".owner", ignored);
  if (!owned && (!fs::is_directory(to) || CheckpointDirectory(to).candidates().empty())) return;
  throw UsageError(
      fmt::format("'{}' already holds the checkpoints of a run or of a conversion; name "
                  "a new directory",
                  to.string()));
}

std::size_t import_file(const ForeignFile& file, const FileContents& content, const fs::path& to,
                        const std::string& prefix) {
  require_unused(to);
  const std::vector<ExternalArray>& arrays = content.arrays;
  const Spool spool(file, arrays, to);
  std::vector<ArrayView> views;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    views.push_back({prefix_to_add(prefix) + arrays[i].name,
                     arrays[i].dtype,
                     arrays[i].shape,
                     spool.dense(i),
                     {}});
  nlohmann::json state = {{"source", file.path().filename().string()}};
  if (!content.values.empty()) state["values"] = content.values;
  SaveOptions options;
  options.write.progress = terminal_progress(to.filename().string());
  CheckpointDirectory(to, options)
      .save(0, OwnerTag::of_this_process("convert", 0), views,
            {.run_id = "converted", .state = std::move(state)});
  return arrays.size();
}

std::size_t rewrite_file(const ForeignFile& file, const FileContents& content, const fs::path& to,
                         TargetKind kind, const std::string& prefix) {
  std::vector<std::string_view> names;
  for (const ExternalArray& array : content.arrays) names.push_back(array.name);
  Arrays arrays;
  std::vector<ExternalArray> chosen;
  for (auto& [index, name] : without_prefix(names, prefix, file.path())) {
    const ExternalArray& array = content.arrays[index];
    arrays.headers.push_back({std::move(name), array.dtype, array.shape});
    chosen.push_back(array);
  }
  const Spool spool(file, chosen, to);
  arrays.give = [&](std::size_t index, const TakeBytes& take) {
    auto rest = spool.dense(index);
    for (; !rest.empty(); rest = rest.subspan(std::min<std::size_t>(rest.size(), kPieceBytes)))
      take(rest.first(std::min<std::size_t>(rest.size(), kPieceBytes)));
  };
  write(to, kind, arrays);
  return chosen.size();
}

// The number of threads that can hold one block each within the memory limit.
unsigned threads_for(const Checkpoint& checkpoint, const Output& output) {
  std::uint64_t block = kMinBlockBytes;
  for (const FileInfo& file : checkpoint.manifest().files)
    block = std::max(block, file.block_bytes);
  return static_cast<unsigned>(std::min<std::uint64_t>(output.threads, 1 + kPieceBytes / block));
}

std::size_t export_checkpoint(const Checkpoint& checkpoint, const fs::path& to, TargetKind kind,
                              const Conversion& conversion, const Output& output) {
  if (kind == TargetKind::directory)
    throw UsageError(
        fmt::format("'{}' is a checkpoint already; name a file to convert it to, which "
                    "ends in .safetensors, or in .pt (.pth, .bin, .ckpt) for "
                    "torch.save's format, not '{}'",
                    checkpoint.path().string(), to.string()));
  const Choice choice(conversion);
  std::vector<std::string> all;
  for (const StoredArray& array : checkpoint.arrays()) all.push_back(array.name);
  choice.require_effect(all);
  std::erase_if(all, [&](const std::string& name) { return !choice.takes(name); });
  const std::vector<std::string_view> names(all.begin(), all.end());
  Arrays arrays;
  std::vector<std::string> chosen;
  for (auto& [index, name] : without_prefix(names, conversion.prefix, checkpoint.path())) {
    const StoredArray& array = *checkpoint.find(all[index]);
    arrays.headers.push_back({std::move(name), array.dtype, array.shape});
    chosen.push_back(array.name);
  }
  const ReadOptions options{threads_for(checkpoint, output), {}};
  arrays.give = [&](std::size_t index, const TakeBytes& take) {
    checkpoint.stream(chosen[index], kPieceBytes, options, take);
  };
  write(to, kind, arrays);
  return chosen.size();
}

std::size_t convert_file(const fs::path& from, const fs::path& to, TargetKind kind,
                         const Conversion& conversion) {
  const ForeignFile file = ForeignFile::open(from, PlainHdf5::read);
  const FileContents content = chosen_of(file, Choice(conversion));
  const std::size_t count = kind == TargetKind::directory
                                ? import_file(file, content, to, conversion.prefix)
                                : rewrite_file(file, content, to, kind, conversion.prefix);
  say_what_became_of_values(content, kind);
  return count;
}

}  // namespace

int run_convert(const fs::path& from, const fs::path& to, const Conversion& conversion,
                const Output& output) {
  const TargetKind kind = target_kind(to);
  const auto checkpoint = checkpoint_in(from);
  const std::size_t count =
      checkpoint ? export_checkpoint(Checkpoint::open(*checkpoint), to, kind, conversion, output)
                 : convert_file(from, to, kind, conversion);
  fmt::print("{} arrays: '{}' to '{}'\n", count, from.string(), to.string());
  return 0;
}

}  // namespace ddp::ckpt::tool
