// SPDX-License-Identifier: Apache-2.0
// A written manifest is read back. A changed or fabricated one is rejected with a sentence that
// names the defect.

#include "hdf5_ckpt/core/manifest.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <random>

#include "base/json/bounded_json.h"
#include "hdf5_ckpt/core/crc32c.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/json_fields.h"
#include "tests/unit/hdf5_ckpt/fault_matrix.h"
#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

using nlohmann::json;
using test::TempDirectory;
using testing::HasSubstr;

// A manifest with two files, and arrays with one block, several blocks and none.
Manifest sample() {
  Manifest manifest;
  manifest.step = 12345;
  manifest.epoch = 3;
  manifest.world_size = 2;
  manifest.run_id = "r\xC3\xBCn-7";
  manifest.created_unix = 1700000000;
  manifest.state = R"({"lr": 0.1, "seed": 18446744073709551615, "tags": ["a", "b"]})"_json;
  manifest.files = {{"rank-0.h5", 1000000, 4096, 0x01020304},
                    {"rank-1.h5", 500, 65536, 0xFFFFFFFF}};
  const std::vector<std::uint32_t> blocks = {0x11111111, 0x22222222, 0x33333333};
  const std::uint32_t whole =
      crc32c_combine(crc32c_combine(blocks[0], blocks[1], 4096), blocks[2], 10000 - 2 * 4096);
  manifest.arrays = {
      {"model/bias", DType::float32, {10}, "rank-1.h5", 100, 40, 0xABCDEF01, {0xABCDEF01}},
      {"model/empty", DType::int64, {0, 3}, "rank-1.h5", 0, 0, 0, {}},
      {"model/weight", DType::bfloat16, {50, 100}, "rank-0.h5", 8192, 10000, whole, blocks},
      {"optim/step", DType::int64, {}, "rank-0.h5", 4096, 8, 0x00000007, {0x00000007}}};
  return manifest;
}

// Returns the text of a manifest with this body and a correct checksum, as an attacker would write
// it.
std::string sign_text(std::string body) {
  body = "\"," + body;
  return "{\"crc32c\": \"" + checksum_text(crc32c(std::as_bytes(std::span(body)))) + body;
}

std::string sign(const json& document) {
  json body = document;
  body.erase("crc32c");
  return sign_text(body.dump().substr(1));
}

json sample_document() {
  return test::json_of(serialize_manifest(sample()));
}

// Returns the damage that a reader finds, "none", or "no damage: " and another error.
std::string damage_of(const std::string& text) {
  try {
    static_cast<void>(parse_manifest(text));
  } catch (const DamagedError& error) {
    return error.what();
  } catch (const Error& error) {
    return std::string("no damage: ") + error.what();
  }
  return "none";
}

// Returns a list with `count` times the same JSON text.
std::string repeated(const std::string& text, std::size_t count) {
  std::string list = "[" + text;
  for (std::size_t i = 1; i < count; ++i) list += "," + text;
  return list + "]";
}

TEST(Manifest, RoundTrips) {
  const Manifest written = sample();
  const Manifest read = parse_manifest(serialize_manifest(written));
  EXPECT_EQ(read.step, written.step);
  EXPECT_EQ(read.epoch, written.epoch);
  EXPECT_EQ(read.world_size, written.world_size);
  EXPECT_EQ(read.run_id, written.run_id);
  EXPECT_EQ(read.created_unix, written.created_unix);
  EXPECT_EQ(read.state.dump(), written.state.dump());
  EXPECT_EQ(read.files, written.files);
  EXPECT_EQ(read.arrays, written.arrays);
  EXPECT_EQ(serialize_manifest(read), serialize_manifest(written));
}

TEST(Manifest, PermanentRoundTripsAndIsAbsentOtherwise) {
  Manifest written = sample();
  EXPECT_FALSE(parse_manifest(serialize_manifest(written)).permanent);
  EXPECT_EQ(serialize_manifest(written).find("permanent"), std::string::npos);
  written.permanent = true;
  EXPECT_TRUE(parse_manifest(serialize_manifest(written)).permanent);
}

// More arrays than any model has.
TEST(Manifest, ReadsAHundredThousandArrays) {
  constexpr std::uint64_t kArrays = 100000;
  Manifest written = sample();
  const ArrayInfo first = written.arrays.front();
  written.arrays.clear();
  for (std::uint64_t i = 0; i < kArrays; ++i) {
    ArrayInfo array = first;
    array.name = fmt::format("model/{:06}", i);
    array.offset += i * array.length;
    written.arrays.push_back(std::move(array));
  }
  for (auto& file : written.files) file.size = first.offset + kArrays * first.length;
  EXPECT_EQ(parse_manifest(serialize_manifest(written)).arrays, written.arrays);
}

TEST(Manifest, HandSignedCopyIsAccepted) {
  // Otherwise, the manifests of the following tests would be rejected for the wrong reason.
  EXPECT_EQ(damage_of(sign(sample_document())), "none");
}

TEST(Manifest, RecordsRoundTripAsJson) {
  const Manifest manifest = sample();
  const FileRecord record{manifest.files[0], {manifest.arrays[2], manifest.arrays[3]}};
  EXPECT_EQ(record_from_json(test::json_of(record_to_json(record).dump())), record);
  EXPECT_THROW(record_from_json(json::object()), Error);
  EXPECT_THROW(record_from_json(json::array()), Error);
}

TEST(Manifest, EveryFlippedBitIsFound) {
  const std::string text = serialize_manifest(sample());
  for (std::size_t at = 0; at < text.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = text;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      ASSERT_NE(damage_of(flipped), "none") << "byte " << at << " bit " << bit;
    }
}

TEST(Manifest, EveryTruncationIsFound) {
  const std::string text = serialize_manifest(sample());
  for (std::size_t length = 0; length < text.size(); ++length)
    ASSERT_NE(damage_of(text.substr(0, length)), "none") << length;
  EXPECT_NE(damage_of(text + " "), "none");
}

struct Change {
  const char* pointer;
  std::string value;  // empty: the field is removed. The fields of an object replace those there
  const char* expected;
};

std::vector<Change> changes() {
  const std::string long_name(1025, 'a');
  const std::string deep = std::string(40, '[') + "1" + std::string(40, ']');
  const std::string file = sample_document()["files"][0].dump();
  return {
      {"", R"({"later": [1, 2, 3]})", "none"},
      {"/arrays/0", R"({"later": "x"})", "none"},
      {"/files/0/name", R"("../rank-0.h5")", "not start with '.'"},
      {"/files/0/name", R"("/etc/passwd.h5")", "a file name may contain only"},
      {"/files/0/name", R"("manifest.json")", "a file name must end in '.h5'"},
      {"/files/1/name", R"("rank-0.h5")", "'rank-0.h5' appears twice"},
      {"/arrays/2/file", R"("rank-9.h5")", "is in a file that is not listed"},
      {"/arrays/0/name", R"("model/../x")", "component '.' or '..'"},
      {"/arrays/0/name", R"("/model")", "starts or ends with '/'"},
      {"/arrays/0/name", R"("")", "is empty"},
      {"/arrays/0/name", '"' + long_name + '"', "longer than 1024"},
      {"/arrays/0/name", R"("a\u001b[2J")", "control character"},
      {"/arrays/1/name", R"("model/bias")", "'model/bias' appears twice"},
      {"/arrays/0/name", R"("model")", "is an array and also the group"},
      {"/arrays/3/name", R"("a")", "not sorted by name"},
      {"/arrays/2/dtype", R"("float8")", "arrays[2].dtype is not an element type"},
      {"/arrays/2/length", "20000", "takes 10000"},
      {"/arrays/2/shape", "[50, 101]", "takes 10100"},
      {"/arrays/2/shape", "[4611686018427387904, 4611686018427387904]", "impossible size"},
      {"/arrays/1/shape", "[0, 4611686018427387904, 4611686018427387904]", "impossible size"},
      {"/arrays/2/shape", "[-50, -100]", "not a whole number"},
      {"/arrays/2/shape", "[50.0, 100]", "not a whole number"},
      {"/arrays/2/shape", R"("big")", "arrays[2].shape is \"big\", not a list"},
      {"/arrays/2/shape", repeated("1", 33), "arrays[2].shape has 33 entries"},
      {"/arrays/2/offset", "995000", "outside of 'rank-0.h5'"},
      {"/arrays/2/offset", "9223372036854775807", "outside of 'rank-0.h5'"},
      {"/arrays/2/offset", "-1", "arrays[2].offset is -1, not a whole number"},
      {"/arrays/2/offset", "18446744073709551615", "not a whole number from 0"},
      {"/arrays/1/offset", "8", "outside of 'rank-1.h5'"},
      {"/arrays/3/offset", "18000", "'model/weight' and 'optim/step' overlap"},
      {"/arrays/3/offset", "8192", "overlap"},
      {"/arrays/2/block_crc32c", R"(["11111111"])", "1 blocks, not 3"},
      {"/arrays/2/block_crc32c", R"(["11111111", "22222222", "33333334"])",
       "is not that of its blocks"},
      {"/arrays/2/crc32c", R"("00000000")", "is not that of its blocks"},
      {"/arrays/0/crc32c", R"("ABCDEF01")", "not a checksum"},
      {"/arrays/0/crc32c", R"("abc")", "not a checksum"},
      {"/arrays/0/crc32c", "5", "not a checksum"},
      {"/files/0/block_bytes", "1", "blocks of 1 bytes"},
      {"/files/0/block_bytes", "0", "blocks of 0 bytes"},
      {"/files/0/block_bytes", "1099511627776", "files[0].block_bytes"},
      {"/files/0/size", "-5", "files[0].size is -5"},
      {"/step", R"("1")", "step is \"1\""},
      {"/step", "18446744073709551615", "step is 18446744073709551615"},
      {"/world_size", "0", "world_size is 0"},
      {"/run_id", R"("a\nb")", "run_id contains a control character"},
      {"/schema", R"("safetensors")", "schema is not that of a checkpoint"},
      {"/schema", R"("slurm-ddp/checkpoint/2")", "no damage: it was written in the newer format"},
      {"/min_reader", std::to_string(kReaderVersion + 1), "no damage: it was written in the newer"},
      {"/arrays", "", "arrays is missing"},
      {"/arrays", "{}", "arrays is {}, not a list"},
      {"/arrays/2", "7", "arrays[2] is 7, not an object"},
      {"/files", repeated(file, 65537), "files has 65537 entries"},
      {"/arrays/0", R"({"global_shape": [20]})", "arrays[0].start is missing"},
      {"/arrays/0", R"({"start": [0]})", "global_shape is missing"},
      {"/arrays/0", R"({"global_shape": [20], "start": [-1]})",
       "arrays[0].start contains a value that is not a whole number"},
      {"/arrays/0", R"({"global_shape": [20], "start": [11]})",
       "a part of array 'model/bias' has [10] from [11], outside of [20]"},
      {"/arrays/0", R"({"global_shape": [20], "start": [10]})", "array 'model/bias' has a hole"},
      {"/arrays/1", R"({"name": "model/bias", "global_shape": [0, 3], "start": [0, 0]})",
       "'model/bias' appears twice"},
      {"/permanent", "1", "permanent is neither true nor false"},
      {"/state", deep, "nested too deep"},
  };
}

TEST(Manifest, ErrorNamesTheChangedField) {
  for (const auto& [pointer, value, expected] : changes()) {
    json document = sample_document();
    json& field = document[json::json_pointer(pointer)];
    if (value.empty())
      document.erase(pointer + 1);
    else if (const json changed = test::json_of(value); changed.is_object() && field.is_object())
      field.update(changed);
    else
      field = changed;
    EXPECT_THAT(damage_of(sign(document)), HasSubstr(expected))
        << pointer << ": " << value.substr(0, 100);
  }
}

TEST(Manifest, PartsOutOfOrderAreRejected) {
  json document = sample_document();
  json& arrays = document["arrays"];
  arrays[0].update(R"({"global_shape": [20], "start": [10]})"_json);
  arrays[1] = arrays[0];
  arrays[1].update(R"({"start": [0], "file": "rank-0.h5"})"_json);
  EXPECT_THAT(damage_of(sign(document)), HasSubstr("'model/bias' appears twice"));
}

TEST(Manifest, OtherTextIsRejected) {
  EXPECT_THAT(damage_of(""), HasSubstr("does not start like a manifest"));
  EXPECT_THAT(damage_of("{}"), HasSubstr("does not start like a manifest"));
  EXPECT_THAT(damage_of(sign_text("\"step\": }")), HasSubstr("not JSON"));
  EXPECT_THAT(damage_of(sign_text("\"state\": \"\xff\"}")), HasSubstr("not JSON"));
  EXPECT_THAT(damage_of(sign_text("\"a\": " + std::string(1000000, '['))), HasSubstr("too deep"));
  EXPECT_THAT(damage_of(std::string(kMaxManifestBytes + 1, ' ')), HasSubstr("larger than"));
}

TEST(Manifest, StateThatJsonWouldChangeIsNotWritten) {
  const auto problem = [](const json& state) {
    Manifest manifest = sample();
    manifest.state = state;
    return error_of([&] { static_cast<void>(serialize_manifest(manifest)); });
  };
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(problem({{"a", {1, {{"best", infinity}}}}}), HasSubstr("/a/1/best is not a finite"));
  EXPECT_THAT(problem(std::nan("")), HasSubstr("not a finite"));
  EXPECT_THAT(problem("\xff"), HasSubstr("not UTF-8"));
  EXPECT_THAT(problem(json::binary({1, 2})), HasSubstr("binary"));
}

TEST(Manifest, StateOfMaximumDepthIsRead) {
  const auto nested = [](int levels) {
    json state = 1;
    for (int i = 0; i < levels; ++i) state = json::array({state});
    return state;
  };
  Manifest manifest = sample();
  int written = 0;
  for (int levels = 0; levels < kMaxJsonDepth + 5; ++levels) {
    manifest.state = nested(levels);
    std::string text;
    try {
      text = serialize_manifest(manifest);
    } catch (const Error&) {
      continue;
    }
    ++written;
    EXPECT_EQ(parse_manifest(text).state.dump(), manifest.state.dump()) << levels;
  }
  EXPECT_GE(written, kMaxJsonDepth - 3);
  EXPECT_LT(written, kMaxJsonDepth + 5);
}

// ---- mutations: every text gives an Error or a manifest that follows the rules -----------------

json random_value(std::mt19937& random) {
  static const json kValues = R"([0, 1, -1, 8, 4096, 65537, 1000000, 9223372036854775807,
      18446744073709551615, 1e300, 0.5, "", "..", "a/b", "/", "model/bias", "rank-0.h5",
      "rank-1.h5", "float32", "bool", "00000000", "\u001b", true, null, [], {}, [1, 2, 3], [0, 0],
      {"name": "x"}])"_json;
  return kValues[random() % kValues.size()];
}

// Changes, removes or duplicates one random value somewhere in the document.
void mutate(json& value, std::mt19937& random) {
  if (!value.is_structured() || value.empty() || random() % 8 == 0) {
    value = random_value(random);
    return;
  }
  auto child = value.begin();
  std::advance(child, static_cast<std::ptrdiff_t>(random() % value.size()));
  switch (random() % 12) {
    case 0:
      value.erase(child);
      return;
    case 1:
      if (value.is_array()) value.push_back(*child);
      return;
    default:
      mutate(*child, random);
  }
}

void expect_rules_kept(const Manifest& manifest) {
  std::map<std::string, std::uint64_t> sizes;
  for (const FileInfo& file : manifest.files) {
    ASSERT_EQ(file.name.find('/'), std::string::npos);
    ASSERT_TRUE(sizes.emplace(file.name, file.size).second);
  }
  std::map<std::pair<std::string, std::uint64_t>, std::uint64_t> claimed;
  for (const ArrayInfo& array : manifest.arrays) {
    ASSERT_TRUE(sizes.contains(array.file));
    ASSERT_LE(array.length, sizes[array.file]);
    ASSERT_LE(array.offset, sizes[array.file] - array.length);
    ASSERT_EQ(byte_count(array.dtype, array.shape), array.length);
    if (array.length == 0) continue;
    ASSERT_TRUE(claimed.emplace(std::pair(array.file, array.offset), array.length).second);
  }
  const std::pair<const std::pair<std::string, std::uint64_t>, std::uint64_t>* before = nullptr;
  for (const auto& entry : claimed) {
    const bool same_file = before != nullptr && before->first.first == entry.first.first;
    ASSERT_TRUE(!same_file || before->first.second + before->second <= entry.first.second);
    before = &entry;
  }
}

TEST(Manifest, HundredThousandMutationsAreRejectedOrValid) {
  std::mt19937 random(20240517);
  const json original = sample_document();
  const std::string text = original.dump();
  int accepted = 0;
  for (int i = 0; i < 100000; ++i) {
    std::string signed_text;
    if (i % 2 == 0) {
      json document = original;
      for (auto changes = 1 + random() % 3; changes > 0; --changes) mutate(document, random);
      document = document.is_object() ? document : original;
      signed_text = sign(document);
    } else {
      std::string body = text.substr(1);
      for (auto changes = 1 + random() % 4; changes > 0; --changes)
        body[random() % body.size()] = static_cast<char>(random());
      signed_text = sign_text(body);
    }
    try {
      const Manifest manifest = parse_manifest(signed_text);
      ++accepted;
      expect_rules_kept(manifest);
    } catch (const Error&) {
    }
    if (testing::Test::HasFatalFailure()) FAIL() << "case " << i << ": " << signed_text;
  }
  test::expect_in_fault_matrix("manifest with bytes changed at random", 100000);
  // Some mutations (of the state or a step) are harmless. If all were rejected, the test would be
  // useless.
  EXPECT_GT(accepted, 1000);
  EXPECT_LT(accepted, 90000);
}

// Limits the address space of this process while the object lives.
class AddressSpace {
 public:
  explicit AddressSpace(std::uint64_t more) {
    ::getrlimit(RLIMIT_AS, &before_);
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit now = before_;
    now.rlim_cur = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + more;
    ::setrlimit(RLIMIT_AS, &now);
  }
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;
  ~AddressSpace() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_ = {};
};

// Six million empty strings take 18 MB as JSON and several hundred MB in memory.
TEST(ManifestLimits, ManifestTooLargeForMemoryIsRejectedWithoutACrash) {
  std::string body = "\",\n\"schema\": \"slurm-ddp/checkpoint/1\",\n\"state\": [\"\"";
  for (int i = 0; i < 6000000; ++i) body += ",\"\"";
  body += "]}\n";
  const std::string text =
      fmt::format("{{\"crc32c\": \"{:08x}{}", crc32c(std::as_bytes(std::span(body))), body);
  {
    const AddressSpace little(400ULL << 20);
    EXPECT_THAT(error_of([&] { parse_manifest(text); }),
                HasSubstr("more than this process may use"));
    EXPECT_THROW(parse_manifest(text), UnreadableError) << "its bytes may be correct";
  }
  EXPECT_THAT(error_of([&] { parse_manifest(text); }), HasSubstr("min_reader is missing"));
}

TEST(ManifestVersion, IsTheLowestThatSupportsTheElementTypes) {
  for (const DType dtype : kAllDTypes) {
    const TempDirectory root(test::On::memory);
    test::ArraySet set;
    set.add("w", dtype, {3});
    CheckpointDirectory directory(root, test::small_options());
    const Saved saved = directory.save(1, test::test_owner(), set.views(), test::test_info());
    const auto version = is_of_first_versions(dtype) ? kWholeArraysVersion : kMoreTypesVersion;
    EXPECT_THAT(serialize_manifest(saved.manifest),
                HasSubstr(fmt::format("\"min_reader\": {},", version)));
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
    EXPECT_TRUE(test::holds(Checkpoint::open(saved.path), set));
  }
  // Later versions added the other types.
  EXPECT_TRUE(is_of_first_versions(DType::float8_e5m2));
  EXPECT_FALSE(is_of_first_versions(DType::uint16));
}

}  // namespace
}  // namespace ddp::ckpt
