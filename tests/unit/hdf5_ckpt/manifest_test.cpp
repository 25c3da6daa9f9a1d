// SPDX-License-Identifier: Apache-2.0
// A written manifest is read back. A changed or fabricated one is rejected with a sentence that
// names the defect.

#include "hdf5_ckpt/manifest.h"

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
#include <utility>

#include "fault_matrix.h"
#include "hdf5_ckpt/crc32c.h"
#include "hdf5_ckpt/detail/json_fields.h"
#include "hdf5_ckpt/error.h"
#include "support.h"

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
  manifest.state = {{"lr", 0.1}, {"seed", 18446744073709551615ULL}, {"tags", {"a", "b"}}};
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
  return json::parse(serialize_manifest(sample()));
}

std::string damage_of(const std::string& text) {
  try {
    static_cast<void>(parse_manifest(text));
  } catch (const DamagedError& error) {
    return error.what();
  }
  return "none";
}

TEST(Manifest, RoundTrips) {
  const Manifest written = sample();
  const Manifest read = parse_manifest(serialize_manifest(written));
  EXPECT_EQ(read.step, written.step);
  EXPECT_EQ(read.epoch, written.epoch);
  EXPECT_EQ(read.world_size, written.world_size);
  EXPECT_EQ(read.run_id, written.run_id);
  EXPECT_EQ(read.created_unix, written.created_unix);
  EXPECT_EQ(read.state, written.state);
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

TEST(Manifest, UnknownKeysAreIgnored) {
  json document = sample_document();
  document["later"] = {1, 2, 3};
  document["arrays"][0]["later"] = "x";
  EXPECT_EQ(damage_of(sign(document)), "none");
}

TEST(Manifest, RecordsRoundTripAsJson) {
  const Manifest manifest = sample();
  const FileRecord record{manifest.files[0], {manifest.arrays[2], manifest.arrays[3]}};
  EXPECT_EQ(record_from_json(json::parse(record_to_json(record).dump())), record);
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

struct Attack {
  const char* name;
  std::function<void(json&)> change;
  const char* expected;
};

TEST(Manifest, ErrorNamesTheChangedField) {
  const auto set = [](const char* pointer, const json& value) {
    return [pointer, value](json& d) { d[json::json_pointer(pointer)] = value; };
  };
  const std::vector<Attack> attacks = {
      {"directory above", set("/files/0/name", "../rank-0.h5"), "not start with '.'"},
      {"absolute path", set("/files/0/name", "/etc/passwd.h5"), "a file name may contain only"},
      {"other file", set("/files/0/name", "manifest.json"), "a file name must end in '.h5'"},
      {"file twice", set("/files/1/name", "rank-0.h5"), "'rank-0.h5' appears twice"},
      {"no such file", set("/arrays/2/file", "rank-9.h5"), "is in a file that is not listed"},
      {"name with ..", set("/arrays/0/name", "model/../x"), "component '.' or '..'"},
      {"name absolute", set("/arrays/0/name", "/model"), "starts or ends with '/'"},
      {"name empty", set("/arrays/0/name", ""), "is empty"},
      {"name long", set("/arrays/0/name", std::string(1025, 'a')), "longer than 1024"},
      {"name controls terminal", set("/arrays/0/name", "a\x1b[2J"), "control character"},
      {"name twice", set("/arrays/1/name", "model/bias"), "'model/bias' appears twice"},
      {"array is group", set("/arrays/0/name", "model"), "is an array and also the group"},
      {"not sorted", set("/arrays/3/name", "a"), "not sorted by name"},
      {"dtype", set("/arrays/2/dtype", "float8"), "arrays[2].dtype is not an element type"},
      {"length too long", set("/arrays/2/length", 20000), "takes 10000"},
      {"shape too large", set("/arrays/2/shape", {50, 101}), "takes 10100"},
      {"shape overflows", set("/arrays/2/shape", {1LL << 62, 1LL << 62}), "impossible size"},
      {"shape hides overflow", set("/arrays/1/shape", {0, 1LL << 62, 1LL << 62}),
       "impossible size"},
      {"shape negative", set("/arrays/2/shape", {-50, -100}), "not a whole number"},
      {"shape real", set("/arrays/2/shape", {50.0, 100}), "not a whole number"},
      {"shape text", set("/arrays/2/shape", "big"), "arrays[2].shape is \"big\", not a list"},
      {"rank", set("/arrays/2/shape", json(33, 1)), "arrays[2].shape has 33 entries"},
      {"offset outside", set("/arrays/2/offset", 995000), "outside of 'rank-0.h5'"},
      {"offset wraps", set("/arrays/2/offset", 0x7FFFFFFFFFFFFFFFLL), "outside of 'rank-0.h5'"},
      {"offset negative", set("/arrays/2/offset", -1),
       "arrays[2].offset is -1, not a whole number"},
      {"offset huge", set("/arrays/2/offset", 0xFFFFFFFFFFFFFFFFULL), "not a whole number from 0"},
      {"offset of nothing", set("/arrays/1/offset", 8), "outside of 'rank-1.h5'"},
      {"overlap", set("/arrays/3/offset", 18000), "'model/weight' and 'optim/step' overlap"},
      {"inside another", set("/arrays/3/offset", 8192), "overlap"},
      {"blocks missing", set("/arrays/2/block_crc32c", {"11111111"}), "1 blocks, not 3"},
      {"block checksums", set("/arrays/2/block_crc32c", {"11111111", "22222222", "33333334"}),
       "is not that of its blocks"},
      {"checksum", set("/arrays/2/crc32c", "00000000"), "is not that of its blocks"},
      {"checksum upper case", set("/arrays/0/crc32c", "ABCDEF01"), "not a checksum"},
      {"checksum short", set("/arrays/0/crc32c", "abc"), "not a checksum"},
      {"checksum number", set("/arrays/0/crc32c", 5), "not a checksum"},
      {"blocks tiny", set("/files/0/block_bytes", 1), "blocks of 1 bytes"},
      {"blocks zero", set("/files/0/block_bytes", 0), "blocks of 0 bytes"},
      {"blocks huge", set("/files/0/block_bytes", 1LL << 40), "files[0].block_bytes"},
      {"size negative", set("/files/0/size", -5), "files[0].size is -5"},
      {"step", set("/step", "1"), "step is \"1\""},
      {"step huge", set("/step", 0xFFFFFFFFFFFFFFFFULL), "step is 18446744073709551615"},
      {"no ranks", set("/world_size", 0), "world_size is 0"},
      {"run id", set("/run_id", "a\nb"), "run_id contains a control character"},
      {"schema", set("/schema", "safetensors"), "schema is not that of a checkpoint"},
      {"no arrays", [](json& d) { d.erase("arrays"); }, "arrays is missing"},
      {"arrays not a list", set("/arrays", json::object()), "arrays is {}, not a list"},
      {"array not an object", set("/arrays/2", 7), "arrays[2] is 7, not an object"},
      {"too many files", [](json& d) { d["files"] = json(65537, d["files"][0]); },
       "files has 65537 entries"},
      {"part without its start", [](json& d) { d["arrays"][0]["global_shape"] = {20}; },
       "arrays[0].start is missing"},
      {"part of a start", [](json& d) { d["arrays"][0]["start"] = {0}; },
       "global_shape is missing"},
      {"start negative",
       [](json& d) {
         d["arrays"][0].update({{"global_shape", {20}}, {"start", {-1}}});
       },
       "arrays[0].start contains a value that is not a whole number"},
      {"part outside",
       [](json& d) {
         d["arrays"][0].update({{"global_shape", {20}}, {"start", {11}}});
       },
       "a part of array 'model/bias' has [10] from [11], outside of [20]"},
      {"part alone",
       [](json& d) {
         d["arrays"][0].update({{"global_shape", {20}}, {"start", {10}}});
       },
       "array 'model/bias' has a hole"},
      {"part beside the whole",
       [](json& d) {
         d["arrays"][1] = d["arrays"][0];
         d["arrays"][1]["offset"] = 200;
         d["arrays"][1].update({{"global_shape", {10}}, {"start", {0}}});
       },
       "'model/bias' appears twice"},
      {"parts not in order",
       [](json& d) {
         json part = d["arrays"][0];
         part.update({{"global_shape", {20}}, {"start", {10}}});
         d["arrays"][0] = part;
         part.update({{"start", {0}}, {"file", "rank-0.h5"}});
         d["arrays"][1] = part;
       },
       "'model/bias' appears twice"},
      {"permanent", [](json& d) { d["permanent"] = 1; }, "permanent is neither true nor false"},
      {"deep",
       [](json& d) {
         json deep = 1;
         for (int i = 0; i < 40; ++i) deep = json::array({deep});
         d["state"] = deep;
       },
       "nested too deep"},
  };
  for (const Attack& attack : attacks) {
    json document = sample_document();
    attack.change(document);
    EXPECT_THAT(damage_of(sign(document)), HasSubstr(attack.expected)) << attack.name;
  }
}

TEST(Manifest, OtherTextIsRejected) {
  EXPECT_THAT(damage_of(""), HasSubstr("does not start like a manifest"));
  EXPECT_THAT(damage_of("{}"), HasSubstr("does not start like a manifest"));
  EXPECT_THAT(damage_of(sign_text("\"step\": }")), HasSubstr("not JSON"));
  EXPECT_THAT(damage_of(sign_text("\"state\": \"\xff\"}")), HasSubstr("not JSON"));
  EXPECT_THAT(damage_of(sign_text("\"a\": " + std::string(1000000, '['))), HasSubstr("too deep"));
  std::string many = "\"a\": [0";
  for (int i = 0; i < 16000001; ++i) many += ",0";
  EXPECT_THAT(damage_of(sign_text(many + "]}")), HasSubstr("too many values"));
  EXPECT_THAT(damage_of(std::string(kMaxManifestBytes + 1, ' ')), HasSubstr("larger than"));
}

TEST(Manifest, NewerFormatIsNotReportedAsDamage) {
  for (const auto& [key, value] :
       {std::pair<const char*, json>{"schema", "slurm-ddp/checkpoint/2"},
        std::pair<const char*, json>{"min_reader", kReaderVersion + 1}}) {
    json document = sample_document();
    document[key] = value;
    const std::string text = sign(document);
    try {
      static_cast<void>(parse_manifest(text));
      ADD_FAILURE() << key;
    } catch (const DamagedError& error) {
      ADD_FAILURE() << error.what();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("newer format"));
    }
  }
}

TEST(Manifest, StateThatJsonWouldChangeIsNotWritten) {
  const auto problem = [](const json& state) {
    Manifest manifest = sample();
    manifest.state = state;
    return test::error_of([&] { static_cast<void>(serialize_manifest(manifest)); });
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
    EXPECT_EQ(parse_manifest(text).state, manifest.state) << levels;
  }
  EXPECT_GE(written, kMaxJsonDepth - 3);
  EXPECT_LT(written, kMaxJsonDepth + 5);
}

// ---- mutations: every text gives an Error or a manifest that follows the rules -----------------

json random_value(std::mt19937& random) {
  static const std::vector<json> kValues = {0,
                                            1,
                                            -1,
                                            8,
                                            4096,
                                            65537,
                                            1000000,
                                            0x7FFFFFFFFFFFFFFFLL,
                                            0xFFFFFFFFFFFFFFFFULL,
                                            1e300,
                                            0.5,
                                            "",
                                            "..",
                                            "a/b",
                                            "/",
                                            "model/bias",
                                            "rank-0.h5",
                                            "rank-1.h5",
                                            "float32",
                                            "bool",
                                            "00000000",
                                            "\x1b",
                                            true,
                                            nullptr,
                                            json::array(),
                                            json::object(),
                                            {1, 2, 3},
                                            {0, 0},
                                            {{"name", "x"}}};
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
    EXPECT_THAT(test::error_of([&] { parse_manifest(text); }),
                HasSubstr("more than this process may use"));
    EXPECT_THROW(parse_manifest(text), UnreadableError) << "its bytes may be correct";
  }
  EXPECT_THAT(test::error_of([&] { parse_manifest(text); }), HasSubstr("min_reader is missing"));
}

TEST(ManifestVersion, IsTheLowestThatSupportsTheElementTypes) {
  for (const DType dtype : kAllDTypes) {
    const TempDirectory root(test::On::memory);
    test::ArraySet set;
    set.add("w", dtype, {3});
    CheckpointDirectory directory(root.path(), test::small_options());
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
