// SPDX-License-Identifier: Apache-2.0
// Sealed directories and files: what was changed is named; a seal that failed is none; the newest
// whole one is found.

#include "hdf5_ckpt/seal/sealing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <map>
#include <span>

#include "hdf5_ckpt/core/checksummed_text.h"
#include "hdf5_ckpt/core/crc32c.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/seal/newest.h"
#include "tests/unit/hdf5_ckpt/faulty_ops.h"
#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using ddp::test::write;
using test::FaultyOps;
using test::Names;
using test::TempDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Sealing : public testing::Test {
 protected:
  // A directory with files of several pieces, without bytes, and below another one.
  fs::path make(const std::string& name) {
    write(root_ / name / "model.safetensors", std::string((9U << 20U) + 5, 'm'));
    write(root_ / name / "empty", "");
    write(root_ / name / "global_step5/optim.pt", "optimizer");
    return root_ / name;
  }

  std::string problem(const fs::path& checkpoint) {
    return error_of<DamagedError>([&] { verify_sealed(checkpoint, {}); });
  }

  std::string newest() {
    passed_over_.clear();
    const auto found = newest_whole(
        root_.path(), {}, [this](const std::string& why) { passed_over_.push_back(why); });
    return found ? found->filename().string() : "";
  }

  TempDirectory root_{test::On::memory};
  Names passed_over_;
};

TEST_F(Sealing, OfADirectoryCountsItsFilesAndFindsItWhole) {
  const fs::path checkpoint = make("checkpoint-5");
  fs::create_symlink("model.safetensors", checkpoint / "latest");
  EXPECT_FALSE(is_sealed(checkpoint));
  for (unsigned threads : {1U, 4U}) {
    const SealedContents sealed = seal_checkpoint(checkpoint, {threads});
    EXPECT_EQ(sealed.files, 3U);
    EXPECT_EQ(sealed.links, 1U);
    EXPECT_EQ(sealed.bytes, (9U << 20U) + 5 + 9);
    EXPECT_EQ(verify_sealed(checkpoint, {threads}).bytes, sealed.bytes);
    EXPECT_EQ(verify_sealed(checkpoint, {threads}).added, 0U);
  }
  EXPECT_THAT(test::names_in(checkpoint), testing::SizeIs(5));  // and no draft
  // The checksum is the one that other programs compute, too: that of "123456789" is published.
  write(root_ / "check", "123456789");
  seal_checkpoint(root_ / "check", {});
  EXPECT_EQ(read_seal(root_ / "check").files.front().crc32c, 0xE3069283);
}

TEST_F(Sealing, ALargeFileIsReadInSeveralBlocks) {
  const std::string bytes = std::string(64U << 20U, '\0') + "end";
  write(root_ / "large.pt", bytes);
  seal_checkpoint(root_ / "large.pt", {});
  EXPECT_EQ(read_seal(root_ / "large.pt").files.front().crc32c,
            crc32c(std::as_bytes(std::span(bytes))));
}

TEST_F(Sealing, ALinkNamesWhatItPointsTo) {
  make("checkpoint-5");
  fs::create_directory_symlink("checkpoint-5", root_ / "latest");
  seal_checkpoint(root_ / "latest", {});
  EXPECT_TRUE(is_sealed(root_ / "checkpoint-5"));
  for (const char* name : {"latest", "latest/", "latest/."}) EXPECT_EQ(problem(root_ / name), "");
  // ".." is where the link leads to, as for the kernel.
  fs::create_directories(root_ / "far/run");
  fs::create_directory_symlink("far/run", root_ / "near");
  write(root_ / "far/step-1/model", "whole");
  write(root_ / "step-1/model", "whole");
  seal_checkpoint(root_ / "near/../step-1", {});
  EXPECT_TRUE(is_sealed(root_ / "far/step-1"));
  EXPECT_FALSE(is_sealed(root_ / "step-1"));
}

// transformers deletes the oldest ones by it.
TEST_F(Sealing, TheTimeOfTheDirectoryStays) {
  const fs::path checkpoint = make("checkpoint-5");
  const auto before = fs::file_time_type::clock::now() - std::chrono::hours(5);
  fs::last_write_time(checkpoint, before);
  seal_checkpoint(checkpoint, {});
  EXPECT_EQ(fs::last_write_time(checkpoint), before);
}

TEST_F(Sealing, FilesOfThatNameAreKept) {
  const fs::path checkpoint = make("checkpoint-5");
  write(checkpoint / "seal.json", R"({"precious": 1})");
  EXPECT_THAT(error_of<Error>([&] { seal_checkpoint(checkpoint, {}); }),
              HasSubstr("is no seal, and is not replaced"));
  EXPECT_EQ(ddp::test::text_of(checkpoint / "seal.json"), R"({"precious": 1})");
  fs::rename(checkpoint / "seal.json", checkpoint / "global_step5/seal.json");
  EXPECT_EQ(seal_checkpoint(checkpoint, {}).files, 4U);
  fs::remove(checkpoint / "global_step5/seal.json");
  EXPECT_THAT(problem(checkpoint), HasSubstr("'global_step5/seal.json' is missing"));
}

TEST_F(Sealing, ThatFailsLeavesTheEarlierSeal) {
  const fs::path checkpoint = make("step-1");
  seal_checkpoint(checkpoint, {});
  const std::string earlier = ddp::test::text_of(checkpoint / kSealName);
  FaultyOps counting;
  seal_checkpoint(checkpoint, {1}, counting);
  for (std::size_t i = 0; i < counting.calls().size(); ++i) {
    if (counting.calls()[i].what != "fsync") continue;
    FaultyOps ops(test::Fault::error, i, EIO);
    EXPECT_THROW(seal_checkpoint(checkpoint, {1}, ops), IoError) << i;
    EXPECT_EQ(ddp::test::text_of(checkpoint / kSealName), earlier);
  }
}

TEST_F(Sealing, OfAFileLiesBesideItAndOutlivesARename) {
  write(root_ / "last.ckpt", "weights");
  EXPECT_EQ(seal_checkpoint(root_ / "last.ckpt", {}).files, 1U);
  EXPECT_THAT(test::names_in(root_), ElementsAre("last.ckpt", "last.ckpt.seal.json"));
  fs::rename(root_ / "last.ckpt", root_ / "best.ckpt");
  fs::rename(root_ / "last.ckpt.seal.json", root_ / "best.ckpt.seal.json");
  EXPECT_EQ(problem(root_ / "best.ckpt"), "");
  write(root_ / "best.ckpt", "weighty");
  EXPECT_THAT(problem(root_ / "best.ckpt"), HasSubstr("it is damaged: its checksum"));
}

TEST_F(Sealing, EveryChangeIsNamed) {
  using Damaging = std::pair<std::string, std::function<void(const fs::path&)>>;
  const std::vector<Damaging> changes = {
      {"'model.safetensors' has 9 bytes in place of 9437189",
       [](const fs::path& in) { fs::resize_file(in / "model.safetensors", 9); }},
      {"'empty' has 1 bytes in place of 0", [](const fs::path& in) { write(in / "empty", "x"); }},
      {"'global_step5/optim.pt' is missing",
       [](const fs::path& in) { fs::remove(in / "global_step5/optim.pt"); }},
      {"'global_step5/optim.pt' is damaged: its checksum",
       [](const fs::path& in) { test::flip_bit(in / "global_step5/optim.pt", 3); }},
      {"'model.safetensors' is damaged",
       [](const fs::path& in) { test::flip_bit(in / "model.safetensors", 9U << 20U); }},
      {"'empty' is a link",
       [](const fs::path& in) {
         fs::remove(in / "empty");
         fs::create_symlink("/dev/null", in / "empty");
       }},
      {"'global_step5/optim.pt' is missing",
       [](const fs::path& in) {
         fs::rename(in / "global_step5", in.parent_path() / "elsewhere");
         fs::create_directory_symlink("../elsewhere", in / "global_step5");
       }},
      {"'empty' is not a regular file",
       [](const fs::path& in) {
         fs::remove(in / "empty");
         ASSERT_EQ(mkfifo((in / "empty").c_str(), 0600), 0);
       }},
      {"'hint' points to another place",
       [](const fs::path& in) {
         fs::remove(in / "hint");
         fs::create_symlink("elsewhere", in / "hint");
       }},
      {"'hint' is no longer a link", [](const fs::path& in) { fs::remove(in / "hint"); }},
      {"seal.json' is damaged: its checksum is wrong",
       [](const fs::path& in) { test::flip_bit(in / "seal.json", 40); }},
      {"is not sealed", [](const fs::path& in) { fs::remove(in / "seal.json"); }},
  };
  for (const auto& [expected, change] : changes) {
    const fs::path checkpoint = make("checkpoint-7");
    fs::create_symlink("empty", checkpoint / "hint");
    seal_checkpoint(checkpoint, {});
    change(checkpoint);
    EXPECT_THAT(problem(checkpoint), AllOf(HasSubstr("checkpoint-7"), HasSubstr(expected)));
    fs::remove_all(root_ / "elsewhere");
    fs::remove_all(checkpoint);
  }
}

// Then it may be whole.
TEST_F(Sealing, ASealThatCannotBeLookedForIsNotMissing) {
  const fs::path checkpoint = root_ / std::string(250, 'a');
  write(checkpoint, "weights");
  EXPECT_THROW(read_seal(checkpoint), UnreadableError);  // ENAMETOOLONG, even for root
}

TEST_F(Sealing, FilesAddedLaterAreNoDamage) {
  const fs::path checkpoint = make("checkpoint-5");
  seal_checkpoint(checkpoint, {});
  write(checkpoint / "README.md", "# Model");
  EXPECT_EQ(verify_sealed(checkpoint, {}).added, 1U);
}

TEST_F(Sealing, ManyDamagedFilesAreCounted) {
  for (int i = 0; i < 8; ++i) write(root_ / "step-1" / std::to_string(i), "x");
  seal_checkpoint(root_ / "step-1", {});
  for (int i = 0; i < 8; ++i) write(root_ / "step-1" / std::to_string(i), "y");
  EXPECT_THAT(problem(root_ / "step-1"), AllOf(HasSubstr("'4' is damaged"), HasSubstr("and 3 more"),
                                               testing::Not(HasSubstr("'5'"))));
}

TEST_F(Sealing, RefusesWhatItCannotVouchFor) {
  const auto refusal = [](const fs::path& path) {
    return error_of<Error>([&] { seal_checkpoint(path, {}); });
  };
  EXPECT_THAT(refusal(root_ / "none"), HasSubstr("does not exist"));
  fs::create_directories(root_ / "step-1/below");
  write(root_ / "step-1/begun", "");
  EXPECT_THAT(refusal(root_ / "step-1"), HasSubstr("there is nothing in it"));
  ASSERT_EQ(mkfifo((root_ / "step-1/pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(root_ / "step-1"), HasSubstr("'pipe' is neither a file nor a link"));
  fs::remove(root_ / "step-1/pipe");
  write(root_ / "step-1/a\xFF", "x");
  EXPECT_THAT(refusal(root_ / "step-1"), HasSubstr("not UTF-8"));
}

// Changes a file when the sealing syncs it, as a rank would that is still saving.
class ChangingOps : public FileOps {
 public:
  explicit ChangingOps(fs::path file) : file_(std::move(file)) {}
  int fsync(int fd) override {
    write(file_, "later");
    return FileOps::fsync(fd);
  }

 private:
  fs::path file_;
};

TEST_F(Sealing, RefusesWhatStillChanges) {
  const fs::path checkpoint = make("step-1");
  for (const char* name : {"empty", "new"}) {
    ChangingOps ops(checkpoint / name);
    EXPECT_THAT(error_of<Error>([&] { seal_checkpoint(checkpoint, {}, ops); }),
                AllOf(HasSubstr("changed while it was sealed"), HasSubstr(name)));
    EXPECT_FALSE(is_sealed(checkpoint));
  }
}

TEST_F(Sealing, ThatFailsOrDiesAtAnyCallLeavesNoSealOrAWholeOne) {
  const fs::path checkpoint = make("step-1");
  FaultyOps counting;
  seal_checkpoint(checkpoint, {1}, counting);
  const std::size_t calls = counting.calls().size();
  ASSERT_GT(calls, 10U);
  for (const test::Fault fault : {test::Fault::error, test::Fault::crash_before,
                                  test::Fault::crash_after, test::Fault::crash_half_written})
    for (std::size_t i = 0; i < calls; ++i) {
      fs::remove(checkpoint / kSealName);
      FaultyOps ops(fault, i, ENOSPC);
      try {
        seal_checkpoint(checkpoint, {1}, ops);
      } catch (const Error&) {
      } catch (const test::Crashed&) {
      }
      EXPECT_TRUE(!is_sealed(checkpoint) || problem(checkpoint).empty()) << i;
    }
}

TEST_F(Sealing, PutsTheSealInPlaceAfterAllElseIsDurable) {
  const fs::path checkpoint = make("step-1");
  FaultyOps ops;
  seal_checkpoint(checkpoint, {1}, ops);
  std::map<std::string, int> syncs;  // by name
  for (const auto& call : ops.calls()) {
    if (call.what == "rename") break;
    if (call.what == "fsync") ++syncs[fs::path(call.path).filename().string().substr(0, 10)];
  }
  EXPECT_EQ(syncs["step-1"], 1);
  EXPECT_EQ(syncs["global_ste"], 1);
  EXPECT_EQ(syncs[".seal.json"], 1);
  int files = 0;
  for (const auto& [name, count] : syncs) files += count;
  EXPECT_EQ(files, 3 + 3 + 1);  // files, directories with the parent, the draft
}

TEST_F(Sealing, TheNewestWholeOneIsFoundAndTheOthersAreNamed) {
  EXPECT_EQ(newest(), "");
  for (const char* name : {"checkpoint-500", "checkpoint-1000", "checkpoint-1500"}) make(name);
  EXPECT_THAT(error_of<Error>([&] { newest(); }), HasSubstr("is whole, of 3"));
  seal_checkpoint(root_ / "checkpoint-1000", {});
  seal_checkpoint(root_ / "checkpoint-500", {});
  EXPECT_EQ(newest(), "checkpoint-1000");
  EXPECT_THAT(passed_over_, ElementsAre(HasSubstr("checkpoint-1500' is not sealed")));
  test::flip_bit(root_ / "checkpoint-1000/model.safetensors", 100);
  EXPECT_EQ(newest(), "checkpoint-500");
  EXPECT_THAT(passed_over_,
              ElementsAre(HasSubstr("1500"), HasSubstr("'model.safetensors' is dam")));
  fs::create_directory_symlink("checkpoint-500", root_ / "checkpoint-2000");
  fs::copy(root_ / "checkpoint-500", root_ / ".checkpoint-3000");
  EXPECT_EQ(newest(), "checkpoint-500");
  EXPECT_THAT(unsorted_checkpoints(root_), testing::SizeIs(3));  // no link, nothing hidden
  // One that was moved to another disk.
  TempDirectory other(test::On::memory);
  fs::rename(make("checkpoint-4000"), other / "checkpoint-4000");
  seal_checkpoint(other / "checkpoint-4000", {});
  fs::create_directory_symlink(other / "checkpoint-4000", root_ / "checkpoint-4000");
  EXPECT_EQ(newest(), "checkpoint-4000");
}

TEST_F(Sealing, OwnCheckpointsNeedNoSeal) {
  for (const std::uint64_t step : {1, 2}) test::save_step(root_, step);
  EXPECT_EQ(newest(), "step-00000002");
  test::damage(root_ / "step-00000002");
  EXPECT_EQ(newest(), "step-00000001");
  EXPECT_THAT(passed_over_, ElementsAre(HasSubstr("model/fc.weight")));
  fs::remove_all(root_ / "step-00000002");
  fs::copy(root_ / "step-00000001", root_ / "step-00000007");
  EXPECT_EQ(newest(), "step-00000001");
  EXPECT_THAT(passed_over_, ElementsAre(HasSubstr("its manifest says step 1")));
}

TEST_F(Sealing, OneOfANewerFormatIsNotPassedOver) {
  seal_checkpoint(make("step-1"), {});
  const std::string newer = with_checksum("\"schema\": \"slurm-ddp/seal/2\"}");
  write(make("step-2") / kSealName, newer);
  EXPECT_THAT(error_of<Error>([&] { newest(); }),
              AllOf(HasSubstr("step-2"), HasSubstr("newer format")));
}

// Nothing to resume from is no error, so a wrong directory must be one.
TEST_F(Sealing, TheWrongDirectoryIsNotOneWithoutCheckpoints) {
  const auto refusal = [](const fs::path& root) {
    return error_of<Error>([&] { newest_whole(root, {}, {}); });
  };
  const fs::path checkpoint = make("lightning_logs/version_0/step-1");
  seal_checkpoint(checkpoint, {});
  write(root_ / "logs/version_0/checkpoints/last.ckpt", "weights");
  seal_checkpoint(root_ / "logs/version_0/checkpoints/last.ckpt", {});
  EXPECT_THAT(refusal(root_ / "lightning_logs"), HasSubstr("lightning_logs/version_0'"));
  EXPECT_THAT(refusal(root_ / "logs"), HasSubstr("logs/version_0/checkpoints'"));
  EXPECT_THAT(refusal(checkpoint), HasSubstr("is a checkpoint itself"));
  EXPECT_THAT(refusal(""), HasSubstr("is empty"));
  fs::create_symlink("unmounted", root_ / "dangling");
  EXPECT_THAT(refusal(root_ / "dangling"), HasSubstr("which does not exist"));
  make("a/b/c/d/step-1");
  seal_checkpoint(root_ / "a/b/c/d/step-1", {});
  EXPECT_EQ(refusal(root_ / "a"), "");  // not searched to any depth
}

TEST_F(Sealing, WithoutADirectoryThereIsNoNewest) {
  EXPECT_EQ(newest_whole(root_ / "none", {}, {}), std::nullopt);
  write(root_ / "file", "x");
  EXPECT_THAT(error_of<Error>([&] { newest_whole(root_ / "file", {}, {}); }),
              HasSubstr("is a file"));
}

}  // namespace
}  // namespace ddp::ckpt
