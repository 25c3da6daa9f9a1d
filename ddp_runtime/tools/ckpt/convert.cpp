// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt convert: converts arrays to and from files of other programs, piece by piece, so that
// memory use does not grow with the file.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/tools/ckpt/commands.h"
#include "ddp_runtime/tools/ckpt/conversion.h"
#include "ddp_runtime/tools/ckpt/paths.h"
#include "ddp_runtime/tools/ckpt/spool.h"
#include "ddp_runtime/tools/ckpt/text.h"
#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/file_kind.h"
#include "hdf5_ckpt/convert/foreign_file.h"
#include "hdf5_ckpt/convert/name_prefix.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/names.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"

namespace ddp::ckpt::tool {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWholeModel =
    "; save the state_dict() of the model in Python: torch.save(torch.load('FILE', "
    "weights_only=False).state_dict(), 'NEW.pt'), if you trust the file, because this runs code in "
    "it";

// As --skip takes it, if a terminal can show it.
std::string typed_name(const std::string& name) {
  return label_problem(name).empty() ? name : sanitize(name);
}

// "a,b" for --skip.
std::string list_of(const std::vector<Omission>& arrays) {
  constexpr std::size_t kMaxListed = 20;
  std::string list;
  for (std::size_t i = 0; i < std::min(arrays.size(), kMaxListed); ++i)
    list += (i == 0 ? "" : ",") + typed_name(arrays[i].name);
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
  for (auto* const named : {&contents.unreadable, &contents.renamed})
    std::erase_if(*named, [&](const auto& one) { return !choice.takes(one.name); });
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

void say_what_changed(const FileContents& content, TargetKind target) {
  const std::size_t count = content.values.size();
  const std::string values =
      count == 1 ? "a number or a text" : fmt::format("{} numbers and texts", count);
  if (count != 0 && target == TargetKind::directory)
    fmt::print("stored {} as 'values' in the checkpoint's state\n", values);
  if (count != 0 && target != TargetKind::directory)
    fmt::print("left out {}: the file holds only arrays\n", values);
  FileContents others;
  others.left_out = content.left_out;
  for (const std::string& text : {renamings_text(content), omissions_text(others)})
    if (!text.empty()) fmt::print("{}\n", text);
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
  for (auto& [name, place] : require_prefix(prefix, names, file.path())) {
    const ExternalArray& array = content.arrays[place];
    arrays.headers.push_back({std::move(name), array.dtype, array.shape});
    chosen.push_back(array);
  }
  const Spool spool(file, chosen, to);
  arrays.give = [&](std::size_t index, const TakeBytes& take) {
    auto rest = spool.dense(index);
    for (; !rest.empty(); rest = rest.subspan(std::min<std::size_t>(rest.size(), kPieceBytes)))
      take(rest.first(std::min<std::size_t>(rest.size(), kPieceBytes)));
  };
  write_arrays(to, kind, arrays);
  return chosen.size();
}

std::size_t convert_file(const fs::path& from, const fs::path& to, TargetKind kind,
                         const Conversion& conversion) {
  if (!conversion.map.empty())
    throw UsageError(fmt::format(
        "--map gives names to the arrays of a checkpoint, and '{}' is none; ddp-train --init-map "
        "takes a file with the names of another program",
        from.string()));
  const ForeignFile file = ForeignFile::open(from, PlainHdf5::read);
  const FileContents content = chosen_of(file, Choice(conversion));
  const std::size_t count = kind == TargetKind::directory
                                ? import_file(file, content, to, conversion.prefix)
                                : rewrite_file(file, content, to, kind, conversion.prefix);
  say_what_changed(content, kind);
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
  fmt::print("{}: '{}' to '{}'\n", counted(count, "array"), from.string(), to.string());
  return 0;
}

}  // namespace ddp::ckpt::tool
