// SPDX-License-Identifier: Apache-2.0
// Shards on a node's own disk, and their way to the checkpoint directory.

#include "hdf5_ckpt/directory/local_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using test::Steps;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class LocalStoreTest : public testing::Test {
 protected:
  LocalStoreTest() { fs::create_directory(root_); }

  LocalStore store() { return LocalStore(local_, make_local_store_id(root_, owner_), root_); }

  LocalShard write(LocalStore& store, std::uint64_t step, const std::string& file = "model.h5") {
    return store.write({step, owner_}, 2, file, model_.views(), {{"epoch", 3}}, test::test_info());
  }

  // Of steps 7, 8 and 9, and of step 5 by another process.
  void write_of_two_owners(LocalStore& store) {
    OwnerTag other = owner_;
    other.pid = 99;
    for (const std::uint64_t step : {7, 8, 9}) write(store, step);
    store.write({5, other}, 1, "model.h5", model_.views(), nlohmann::json::object());
  }

  std::vector<std::uint64_t> steps_in(const LocalStore& store) {
    std::vector<std::uint64_t> found;
    for (const auto& shard : store.list(notes_)) found.push_back(shard.save.step);
    std::sort(found.begin(), found.end());
    return found;
  }

  // The directory of all stores.
  fs::path mine() const { return local_ / ("slurm-ddp-" + std::to_string(geteuid())); }
  fs::path save_directory() {
    return mine() / make_local_store_id(root_, owner_) / (".tmp-step-00000007." + owner_.text());
  }

  test::TempDirectory temporary_;
  fs::path root_ = temporary_ / "ckpt";
  fs::path local_ = temporary_ / "local";
  const OwnerTag owner_ = test::test_owner();
  test::ArraySet model_ = test::small_model(7);
  std::vector<std::string> notes_;
};

TEST_F(LocalStoreTest, ListsWhatWasWritten) {
  auto written = store();
  const auto shard = write(written, 7);
  const auto found = store().list(notes_);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].save.step, 7U);
  EXPECT_EQ(found[0].save.owner, owner_);
  EXPECT_EQ(found[0].shards, 2U);
  EXPECT_EQ(found[0].record, shard.record);
  ASSERT_TRUE(found[0].info);
  EXPECT_EQ(found[0].info->state.dump(), test::test_info().state.dump());
  EXPECT_EQ(found[0].info->epoch, test::test_info().epoch);
  EXPECT_TRUE(fs::exists(store().file_of(found[0])));
  EXPECT_THAT(notes_, IsEmpty());
  // A second attempt of the same save replaces it.
  EXPECT_EQ(write(written, 7).record, shard.record);
}

// Everything that is in a manifest passes through the record.
TEST_F(LocalStoreTest, InfoKeepsItsLineageAndPermanence) {
  CheckpointInfo info = test::test_info();
  info.permanent = true;
  info.lineage = Lineage{"0123456789abcdef", 5, {{3, 17, "/ckpt/step-3"}}};
  const auto back = info_from_text(info_to_text({7, owner_}, info));
  EXPECT_TRUE(back.permanent);
  EXPECT_EQ(back.lineage, info.lineage);
  EXPECT_EQ(back.world_size, info.world_size);
  EXPECT_EQ(back.run_id, info.run_id);
  auto text = info_to_text({7, owner_}, info);
  text[text.size() / 2] ^= 1;
  EXPECT_THROW(info_from_text(text), DamagedError);
}

TEST_F(LocalStoreTest, ACopyBecomesACheckpoint) {
  auto local = store();
  const auto shard = write(local, 7);
  CheckpointDirectory directory(root_, test::small_options());
  const auto id = directory.begin(7, owner_);
  directory.copy_shard(id, shard.record, local.file_of(shard));
  directory.read_back(id, shard.record);
  const auto saved = directory.commit(id, {&shard.record, 1}, *shard.info);
  EXPECT_TRUE(test::holds(Checkpoint::open(saved.path), model_));
  EXPECT_EQ(test::file_bytes(saved.path / "model.h5"), test::file_bytes(local.file_of(shard)));
}

TEST_F(LocalStoreTest, AWholeSaveCanBeLoadedFromTheStore) {
  auto local = store();
  const auto shard =
      local.write({7, owner_}, 1, "model.h5", model_.views(), {{"epoch", 3}}, test::test_info());
  const auto checkpoint = local.open({&shard, 1});
  EXPECT_TRUE(test::holds(checkpoint, model_));
  EXPECT_EQ(checkpoint.manifest().step, 7U);
  EXPECT_EQ(checkpoint.manifest().state.dump(), test::test_info().state.dump());
  // One of two shards, and one whose file has another size.
  const auto half = write(local, 8);
  EXPECT_THROW(local.open({&half, 1}), DamagedError);
  fs::resize_file(local.file_of(shard), 100);
  EXPECT_THROW(local.open({&shard, 1}), DamagedError);
}

TEST_F(LocalStoreTest, TakesOverAShardOfAnotherStore) {
  auto theirs = store();
  const auto shard = shard_from_text(shard_to_text(write(theirs, 7)));
  local_ = temporary_ / "elsewhere";
  auto mine = store();
  fs::copy_file(theirs.file_of(shard), mine.make_room_for(shard));
  EXPECT_THAT(mine.list(notes_), IsEmpty()) << "its record is missing";
  mine.add(shard);
  ASSERT_THAT(mine.list(notes_), SizeIs(1));
  EXPECT_EQ(mine.list(notes_)[0].record, shard.record);
  // A second attempt.
  fs::copy_file(theirs.file_of(shard), mine.make_room_for(shard));
  EXPECT_THAT(mine.list(notes_), IsEmpty());
  EXPECT_THROW(shard_from_text("{\"save\": 1}"), Error);
}

TEST_F(LocalStoreTest, RemovesOneShardOfASave) {
  auto local = store();
  const auto first = write(local, 7, "rank-00000-of-00002.h5");
  const auto second = write(local, 7, "rank-00001-of-00002.h5");
  local.remove(first);
  EXPECT_THAT(local.list(notes_), SizeIs(1));
  EXPECT_FALSE(fs::exists(local.file_of(first)));
  local.remove(second);
  EXPECT_FALSE(fs::exists(save_directory()));
  local.remove(second);
}

TEST_F(LocalStoreTest, ADamagedShardIsFoundAfterTheCopy) {
  auto local = store();
  const auto shard = write(local, 7);
  auto bytes = test::file_bytes(local.file_of(shard));
  bytes[shard.record.arrays.front().offset] ^= std::byte{1};
  test::put_file_bytes(local.file_of(shard), bytes);
  CheckpointDirectory directory(root_, test::small_options());
  const auto id = directory.begin(7, owner_);
  directory.copy_shard(id, shard.record, local.file_of(shard));
  EXPECT_THROW(directory.read_back(id, shard.record), DamagedError);

  fs::resize_file(local.file_of(shard), bytes.size() / 2);
  fs::remove_all(root_);
  const auto again = directory.begin(7, owner_);
  directory.copy_shard(again, shard.record, local.file_of(shard));
  EXPECT_THROW(directory.read_back(again, shard.record), DamagedError);
  fs::remove(local.file_of(shard));
  EXPECT_THROW(directory.copy_shard(again, shard.record, local.file_of(shard)), DamagedError);
}

TEST_F(LocalStoreTest, SkipsRecordsThatAreNotWhole) {
  auto local = store();
  write(local, 7, "a.h5");
  write(local, 7, "b.h5");
  write(local, 7, "c.h5");
  const auto directory = save_directory();
  fs::resize_file(directory / "a.h5.json", 40);
  fs::copy_file(directory / "b.h5.json", directory / "other.h5.json");
  fs::remove(directory / "c.h5.json");  // the process died before it wrote the record
  fs::create_symlink("/etc/passwd", directory / "d.h5.json");
  const auto found = local.list(notes_);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].record.file.name, "b.h5");
  EXPECT_THAT(notes_, testing::UnorderedElementsAre(HasSubstr("a.h5.json"),
                                                    HasSubstr("it belongs to another file"),
                                                    HasSubstr("is a symbolic link")));
}

TEST_F(LocalStoreTest, RefusesADirectoryThatOthersCanChange) {
  require_local_directory(local_);
  EXPECT_EQ(fs::status(mine()).permissions(), fs::perms::owner_all);
  fs::permissions(mine(), fs::perms::owner_all | fs::perms::group_write);
  EXPECT_THAT(error_of([&] { require_local_directory(local_); }),
              HasSubstr("only this user can access"));
  fs::remove(mine());
  fs::create_directory(temporary_ / "elsewhere");
  fs::permissions(temporary_ / "elsewhere", fs::perms::owner_all);
  fs::create_directory_symlink(temporary_ / "elsewhere", mine());
  EXPECT_THAT(error_of([&] { store(); }), HasSubstr("only this user can access"));
}

TEST_F(LocalStoreTest, RemovesAllButTheSavesToKeep) {
  auto local = store();
  write_of_two_owners(local);
  const SaveId kept{8, owner_};
  local.keep_only({&kept, 1}, owner_);
  EXPECT_EQ(steps_in(local), (Steps{5, 8}));
  local.keep_only({&kept, 1});
  EXPECT_EQ(steps_in(local), (Steps{8}));
}

TEST_F(LocalStoreTest, RemovesTheSavesUpToAStep) {
  auto local = store();
  write_of_two_owners(local);
  local.remove_up_to(8);
  EXPECT_EQ(steps_in(local), (Steps{9}));
}

TEST_F(LocalStoreTest, IdentityBelongsToOneDirectory) {
  EXPECT_FALSE(local_store_id(root_));
  const auto id = make_local_store_id(root_, owner_);
  EXPECT_EQ(make_local_store_id(root_, owner_), id);
  fs::copy(root_, temporary_ / "copy");
  EXPECT_FALSE(local_store_id(temporary_ / "copy"));

  // What was set aside may be the predecessor of a node-local save.
  test::save_step(root_, 7);
  CheckpointDirectory(root_).set_aside({}, 7, owner_);
  EXPECT_EQ(local_store_id(root_), id);
  CheckpointDirectory(root_).set_aside_later_than(6, owner_);
  EXPECT_FALSE(local_store_id(root_));
}

TEST_F(LocalStoreTest, IdentityDoesNotDependOnTheSpellingOfThePath) {
  const auto id = make_local_store_id(root_ / "", owner_);
  EXPECT_EQ(local_store_id(root_), id);
  EXPECT_EQ(local_store_id(root_ / "." / ""), id);
  EXPECT_EQ(make_local_store_id(root_, owner_), id);
}

TEST_F(LocalStoreTest, RemovesTheStoreOfADirectoryThatWasMadeAgain) {
  auto old = store();
  old.remove_abandoned();
  write(old, 7);
  fs::create_directory(temporary_ / "second");
  LocalStore second(local_, make_local_store_id(temporary_ / "second", owner_),
                    temporary_ / "second");
  second.remove_abandoned();
  // Left by a process that ended before its first save; it does not name its directory.
  // Several, because they must be listed before another store.
  std::vector<std::string> left;
  for (int i = 10; i < 30; ++i) {
    left.push_back("00000000000000" + std::to_string(i));
    LocalStore(local_, left.back(), root_);
  }
  fs::remove_all(root_);
  fs::create_directory(root_);
  auto fresh = store();
  EXPECT_THAT(fresh.list(notes_), IsEmpty());
  EXPECT_THAT(test::names_in(mine()), SizeIs(23));
  fresh.remove_abandoned();
  left.push_back(*local_store_id(root_));
  left.push_back(*local_store_id(temporary_ / "second"));
  EXPECT_THAT(test::names_in(mine()), testing::UnorderedElementsAreArray(left));
}

}  // namespace
}  // namespace ddp::ckpt
