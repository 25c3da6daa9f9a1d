// SPDX-License-Identifier: Apache-2.0
// What the reader of torch.save's files makes of the objects in them: values are right, left out by
// name, or the file is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <complex>

#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/file_kind.h"
#include "hdf5_ckpt/core/error.h"
#include "tests/unit/error_of.h"
#include "tests/unit/hdf5_ckpt/convert/torch_files.h"

namespace ddp::ckpt {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

FileContents parsed(const std::string& file) {
  return parse_torch_file(bytes_of(file));
}

template <typename Number>
std::vector<Number> values_of(const std::string& file, const std::string& name) {
  const auto bytes = bytes_of(file);
  for (const ExternalArray& array : parse_torch_file(bytes).arrays) {
    if (array.name != name) continue;
    std::vector<Number> values(byte_count(array.dtype, array.shape).value() / sizeof(Number));
    copy_elements(bytes, array, 0, std::as_writable_bytes(std::span(values)));
    return values;
  }
  ADD_FAILURE() << "there is no array " << name;
  return {};
}

std::vector<std::string> names_in(const FileContents& contents) {
  std::vector<std::string> names;
  for (const auto& array : contents.arrays) names.push_back(array.name);
  return names;
}

std::vector<std::string> left_out_of(const FileContents& contents) {
  std::vector<std::string> texts;
  for (const Omission& one : contents.left_out.named())
    texts.push_back(one.name + ": " + one.reason);
  return texts;
}

std::string flags(const std::string& items) {
  return dict(items);
}

const std::string kTrue = "\x88";
const std::string kFloats = raw<float>({1, 2});
const std::string kTensor = tensor("FloatStorage", 2);

// A file with a tensor "w" and what else `items` have.
std::string with(const std::string& items) {
  return torch_file(dict(pickled("w") + kTensor + items), kFloats);
}

TEST(TorchFile, AppliesTheFlagsOfViews) {
  using C = std::complex<float>;
  const std::string content = raw<C>({{1, 2}, {3, -4}});
  const auto complex_with = [&](const std::string& items) {
    return values_of<C>(torch_file(dict(pickled("w") + tensor("ComplexFloatStorage", 2,
                                                              "_rebuild_tensor_v2", flags(items))),
                                   content),
                        "w");
  };
  const std::string conj = pickled("conj") + kTrue;
  const std::string neg = pickled("neg") + kTrue;
  EXPECT_THAT(complex_with(pickled("conj") + "\x89"), ElementsAre(C(1, 2), C(3, -4)));
  EXPECT_THAT(complex_with(conj), ElementsAre(C(1, -2), C(3, 4)));
  EXPECT_THAT(complex_with(neg), ElementsAre(C(-1, -2), C(-3, 4)));
  EXPECT_THAT(complex_with(conj + neg), ElementsAre(C(-1, 2), C(-3, -4)));
  const auto negated = [&](const std::string& type, const std::string& bytes,
                           std::int64_t elements) {
    return torch_file(dict(pickled("w") + tensor(type, elements, "_rebuild_tensor_v2", flags(neg))),
                      bytes);
  };
  EXPECT_THAT(values_of<float>(negated("FloatStorage", kFloats, 2), "w"), ElementsAre(-1, -2));
  EXPECT_THAT(
      values_of<std::int64_t>(negated("LongStorage", raw<std::int64_t>({5, -7, 0}), 3), "w"),
      ElementsAre(-5, 7, 0));
  EXPECT_THAT(
      values_of<std::uint16_t>(negated("HalfStorage", raw<std::uint16_t>({0x3c00}), 1), "w"),
      ElementsAre(0xbc00));
}

TEST(TorchFile, DoesNotReadAViewWithAnUnknownFlag) {
  const auto contents =
      parsed(torch_file(dict(pickled("w") + tensor("FloatStorage", 2, "_rebuild_tensor_v2",
                                                   flags(pickled("new") + kTrue))),
                        kFloats));
  EXPECT_THAT(contents.arrays, IsEmpty());
  ASSERT_EQ(contents.unreadable.size(), 1U);
  EXPECT_THAT(contents.unreadable[0].reason, HasSubstr("it has the flag 'new'"));
}

TEST(TorchFile, HonorsTheByteOrder) {
  const std::string tensor_only = dict(pickled("w") + tensor("IntStorage", 2));
  const std::string bytes("\x00\x00\x00\x01\xff\xff\xff\xfe", 8);
  EXPECT_THAT(values_of<std::int32_t>(torch_file(tensor_only, bytes, "big"), "w"),
              ElementsAre(1, -2));
  EXPECT_THAT(error_of([&] { parsed(torch_file(tensor_only, bytes, "middle")); }),
              HasSubstr("a byte order that is neither little nor big"));
  const std::string c = dict(pickled("w") + tensor("ComplexFloatStorage", 1));
  EXPECT_THAT(values_of<std::complex<float>>(
                  torch_file(c, std::string("\x3f\x80\x00\x00\x40\x00\x00\x00", 8), "big"), "w"),
              ElementsAre(std::complex<float>(1, 2)));
}

TEST(TorchFile, ReadsTypesThatHaveNoStorageOfTheirOwn) {
  const auto file = [](const std::string& type) {
    return torch_file(dict(pickled("w") + tensor("UntypedStorage", 2, "_rebuild_tensor_v3",
                                                 global("torch", type))),
                      raw<std::uint16_t>({1, 65535}));
  };
  EXPECT_THAT(values_of<std::uint16_t>(file("uint16"), "w"), ElementsAre(1, 65535));
  EXPECT_EQ(parsed(file("float8_e4m3fn")).arrays.at(0).dtype, DType::float8_e4m3fn);
  EXPECT_THAT(parsed(file("complex32")).unreadable.at(0).reason,
              HasSubstr("its type is complex32, which a checkpoint cannot hold"));
}

TEST(TorchFile, TakesTheContainersOfTheStandardLibrary) {
  const auto contents = parsed(
      with(pickled("counter") + global("collections", "Counter") + dict(number(3) + number(1)) +
           "\x85R" + pickled("default") + global("collections", "defaultdict") +
           global("__builtin__", "int") + "\x85R" + dict(pickled("a") + number(2)).substr(1) +
           pickled("set") + global("__builtin__", "set") + "](" + number(5) + "e\x85R" +
           pickled("size") + global("torch", "Size") + sizes({6, 7}) + "\x85R" + pickled("device") +
           global("torch", "device") + "(" + pickled("cuda") + number(1) + "tR" + pickled("type") +
           global("torch", "bfloat16") + pickled("deque") + global("collections", "deque") + ")" +
           number(3) + "\x86R" + number(8) + "a" + pickled("bytes") + global("_codecs", "encode") +
           pickled("a\xc3\xbf") + pickled("latin1") + "\x86R"));
  EXPECT_THAT(names_in(contents), ElementsAre("w"));
  const nlohmann::json expected = {
      {"counter/3", 1},     {"default/a", 2},           {"set/0", 5},  {"size/0", 6}, {"size/1", 7},
      {"device", "cuda:1"}, {"type", "torch.bfloat16"}, {"deque/0", 8}};
  EXPECT_EQ(contents.values, expected);
  EXPECT_THAT(left_out_of(contents), ElementsAre("bytes: 2 bytes"));
}

TEST(TorchFile, TakesAnyKey) {
  const std::string zero_half = std::string("G\x3f\xe0\0\0\0\0\0\0", 9);
  const auto contents =
      parsed(with("(" + number(0) + pickled("a") + "t" + number(1) + kTrue + number(2) + none() +
                  number(3) + zero_half + number(4) + "\x8a\x09" + little(1ULL << 63U, 8) +
                  std::string(1, '\0') + number(5)));
  const nlohmann::json expected = {
      {"(0, 'a')", 1}, {"True", 2}, {"None", 3}, {"0.5", 4}, {"9223372036854775808", 5}};
  EXPECT_EQ(contents.values, expected);
}

TEST(TorchFile, NamesATensorAfterAKeyThatIsAPath) {
  const auto contents =
      parsed(torch_file(dict(pickled("best") + dict(pickled("/abs//m.ckpt") + kTensor)), kFloats));
  EXPECT_THAT(names_in(contents), ElementsAre("best/abs/m.ckpt"));
  EXPECT_EQ(renamings_text(contents),
            "1 array was renamed: 'best/abs/m.ckpt' (it is 'best//abs//m.ckpt' in the file)");
  EXPECT_THAT(names_in(parsed(torch_file(dict(pickled("..") + kTensor), kFloats))),
              ElementsAre(".._"));
  EXPECT_THAT(names_in(parsed(torch_file(kTensor, kFloats))), ElementsAre("tensor"));
  EXPECT_EQ(renamings_text(parsed(torch_file(kTensor, kFloats))), "") << "it had no name";
}

TEST(TorchFile, TakesAViewWithoutElementsWhereverItBegins) {
  const auto view = [](std::int64_t elements, std::int64_t first) {
    return pickled("v") + global("torch._utils", "_rebuild_tensor_v2") + "(" +
           storage("FloatStorage", elements) + number(first) + sizes({0, 3}) + sizes({7, 9}) +
           "\x89" + global("collections", "OrderedDict") + ")RtR";
  };
  for (const std::int64_t first : {0, 2, 5}) {
    const auto contents = parsed(with(view(2, first)));
    EXPECT_THAT(names_in(contents), ElementsAre("v", "w"));
    EXPECT_THAT(contents.arrays.front().shape, ElementsAre(0, 3));
    EXPECT_THAT(names_in(parsed(torch_file(dict(view(0, first)), ""))), ElementsAre("v"));
  }
}

TEST(TorchFile, KeepsIntegersUpTo64Bits) {
  const auto contents = parsed(
      with(pickled("seed") + "\x8a\x09" + little((1ULL << 63U) + 5, 8) + std::string(1, '\0') +
           pickled("least") + "\x8a\x08" + little(1ULL << 63U, 8) + pickled("long") + "\x8a\x0a" +
           little(~0ULL, 8) + "\xff\x01" + pickled("minus") + "\x8a\x09" + little(1, 8) + "\xff" +
           pickled("one") + "\x8a\x01\xff" + pickled("none") + std::string("\x8a\0", 2)));
  EXPECT_EQ(contents.values["seed"], (1ULL << 63U) + 5);
  EXPECT_EQ(contents.values["least"], std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(contents.values["one"], -1);
  EXPECT_EQ(contents.values["none"], 0);
  EXPECT_THAT(left_out_of(contents),
              ElementsAre("long: an integer of 80 bits", "minus: an integer of 72 bits"));
}

TEST(TorchFile, LeavesOutOtherClassesByName) {
  const auto contents = parsed(
      with(pickled("args") + global("argparse", "Namespace") + ")\x81" +
           dict(pickled("lr") + number(1)) + "b" + pickled("model") + global("nets", "Net") +
           ")\x81" + dict(pickled("weight") + kTensor) + "b" + pickled("run") +
           global("posix", "system") + pickled("touch /tmp/x") + "\x85R" + pickled("class") +
           global("nets", "Net") + pickled("list") + global("nets", "List") + ")\x81(" + number(1) +
           "e" + pickled("map") + global("nets", "Map") + ")\x81(" + pickled("a") + kTensor + "u"));
  EXPECT_THAT(names_in(contents), ElementsAre("w"));
  EXPECT_THAT(
      left_out_of(contents),
      ElementsAre("args: an object of 'argparse.Namespace'",
                  "model: an object of 'nets.Net' with 1 tensor",
                  "run: an object of 'posix.system'", "class: the class 'nets.Net'",
                  "list: an object of 'nets.List'", "map: an object of 'nets.Map' with 1 tensor"));
  EXPECT_EQ(contents.hidden_tensors, 2U);
}

TEST(TorchFile, CountsValuesAndTensorsWhosePathsCoincide) {
  const auto contents = parsed(
      torch_file(dict(pickled("a/b") + number(1) + pickled("a") + dict(pickled("b") + number(2)) +
                      pickled("t/u") + kTensor + pickled("t") + dict(pickled("u") + kTensor)),
                 kFloats));
  EXPECT_EQ(contents.values, (nlohmann::json{{"a/b", 1}}));
  EXPECT_THAT(left_out_of(contents), ElementsAre("a/b: another value has the same path"));
  ASSERT_EQ(contents.unreadable.size(), 1U);
  EXPECT_EQ(contents.unreadable[0].name, "t/u");
  const auto renamed =
      parsed(torch_file(dict(pickled("w/") + kTensor + pickled("w") + kTensor), kFloats));
  EXPECT_THAT(names_in(renamed), ElementsAre("w"));
  ASSERT_EQ(renamed.unreadable.size(), 1U);
  EXPECT_EQ(renamed.unreadable[0].reason,
            "another tensor has the same path, and --skip leaves out both");
}

TEST(TorchFile, LeavesOutObjectsThatContainThemselves) {
  const auto contents =
      parsed(with(pickled("me") + std::string("}q\0", 3) + pickled("me") + std::string("h\0s", 3)));
  EXPECT_THAT(left_out_of(contents), ElementsAre("me/me: an object that contains itself"));
}

TEST(TorchFile, NamesTensorsWhoseValuesCannotBeRead) {
  const auto reason = [](const std::string& object) {
    const auto contents = parsed(torch_file(dict(pickled("w") + object), kFloats));
    return contents.unreadable.size() == 1 ? contents.unreadable[0].reason : "";
  };
  const auto rebuilt = [](const std::string& function) {
    return global("torch._utils", function) + ")R";
  };
  EXPECT_THAT(reason(rebuilt("_rebuild_sparse_tensor")), HasSubstr("it is sparse"));
  EXPECT_THAT(reason(rebuilt("_rebuild_qtensor")), HasSubstr("it is quantized"));
  EXPECT_THAT(reason(rebuilt("_rebuild_meta_tensor_no_storage")), HasSubstr("it has no data"));
  EXPECT_THAT(reason(tensor("QInt8Storage", 2)), HasSubstr("its type is QInt8Storage"));
  const auto of_class = [&](const std::string& module, const std::string& name) {
    const std::string plain = tensor("FloatStorage", 2);
    const auto arguments = plain.find('(');
    return global("torch._tensor", "_rebuild_from_type_v2") + "(" + plain.substr(0, arguments) +
           global(module, name) + plain.substr(arguments, plain.size() - arguments - 1) + "}tR";
  };
  EXPECT_THAT(reason(of_class("mine", "Scaled")), HasSubstr("it is a 'mine.Scaled'"));
  EXPECT_THAT(
      values_of<float>(
          torch_file(dict(pickled("w") + of_class("torch.nn.parameter", "Parameter")), kFloats),
          "w"),
      ElementsAre(1, 2));
}

TEST(TorchFile, ReadsNewerProtocols) {
  const std::string four = "\x80\x04\x95" + little(99, 8) + "}\x94(\x8c\x01w\x94" + kTensor +
                           "\x8c\x01s\x94\x8f\x94(K\x01\x90\x8c\x01"
                           "f\x94(K\x02\x91\x94\x8c\x01"
                           "d\x94" +
                           "\x8c\x05torch\x94\x8c\x07"
                           "float16\x94\x93\x94\x8c\x01"
                           "b\x94"
                           "C\x02xy\x94u.";
  const auto contents = parsed(zip_of({{"a/data.pkl", four}, {"a/data/0", kFloats}}));
  EXPECT_THAT(names_in(contents), ElementsAre("w"));
  EXPECT_EQ(contents.values, (nlohmann::json{{"s/0", 1}, {"f/0", 2}, {"d", "torch.float16"}}));
  EXPECT_THAT(left_out_of(contents), ElementsAre("b: 2 bytes"));
  EXPECT_THAT(error_of([] {
                parsed(zip_of({{"a/data.pkl", "\x80\x06N."}}));
              }),
              HasSubstr("protocol 6 is newer than 5"));
}

TEST(TorchFile, ReadsTheFormatBefore16) {
  const std::string object = dict(pickled("w") + kTensor);
  const auto file = old_torch_file(object, 2, kFloats);
  EXPECT_THAT(values_of<float>(file, "w"), ElementsAre(1, 2));
  EXPECT_THAT(error_of([&] { parsed(file.substr(0, file.size() - 1)); }),
              HasSubstr("before its last tensor; copy or download it again"));
  EXPECT_THAT(error_of([&] { parsed(old_torch_file(object, 1, kFloats)); }),
              HasSubstr("the storage of tensor 'w' is too short"));
}

TEST(TorchFile, ReadsViewsOfStoragesBefore16) {
  const std::string view = "(" + pickled("storage") + global("torch", "FloatStorage") +
                           pickled("0") + pickled("cpu") + number(3) + "(" + pickled("1") +
                           number(1) + number(2) + "ttQ";
  const std::string object = dict(pickled("w") + global("torch._utils", "_rebuild_tensor") + "(" +
                                  view + number(0) + sizes({2}) + sizes({1}) + "tR");
  EXPECT_THAT(values_of<float>(old_torch_file(object, 3, raw<float>({1, 2, 3})), "w"),
              ElementsAre(2, 3));
}

TEST(TorchFile, NeedsNoChecksumsIfItHasNone) {
  const std::string object = dict(pickled("w") + kTensor);
  EXPECT_THAT(values_of<float>(torch_file(object, kFloats, "little", false), "w"),
              ElementsAre(1, 2));
  std::string damaged = torch_file(object, kFloats);
  damaged[damaged.find(kFloats)] ^= 1;
  EXPECT_THAT(error_of([&] { parsed(damaged); }),
              HasSubstr("'a/data/0' in the zip file is damaged"));
}

TEST(TorchFile, NeedsTheSameNameInTheDirectoryAndAtTheEntry) {
  std::string file = torch_file(dict(pickled("w") + kTensor), kFloats, "big");
  file[file.rfind("a/byteorder") + 3] ^= 1;
  EXPECT_THAT(error_of([&] { parsed(file); }), HasSubstr("in the zip file has no header"));
}

TEST(TorchFile, IsBoundedInMemory) {
  // Each step copies a container or a long text.
  std::string copies = global("collections", "Counter") + std::string("q\0", 2) + "0}q\x01(";
  for (int i = 0; i < 20000; ++i) copies += number(i) + "N";
  copies += "u0";
  for (int i = 0; i < 2000; ++i) copies += std::string("h\0h\x01\x85R0", 7);
  EXPECT_THAT(error_of([&] { parsed(torch_file(copies + "N", "")); }),
              HasSubstr("its containers are copied too often"));
  EXPECT_THAT(error_of([] { parsed(torch_file(global("m", std::string(2000, 'n')), "")); }),
              HasSubstr("a name is too long"));
  EXPECT_THAT(error_of([] {
                parsed(torch_file(dict(pickled("w") + global("torch._utils", "_rebuild_tensor_v2") +
                                       "(" + storage("FloatStorage", 1) + number(0) +
                                       sizes(std::vector<std::int64_t>(100, 1)) +
                                       sizes(std::vector<std::int64_t>(100, 1)) + "tR"),
                                  kFloats));
              }),
              HasSubstr("too many dimensions"));
}

TEST(TorchFile, RefusesCompressedEntriesWithTheRemedy) {
  std::string file = with("");
  for (auto at = file.find("a/data/0"); at != std::string::npos;
       at = file.find("a/data/0", at + 1)) {
    const bool central = file.compare(at - 46, 4, "PK\x01\x02") == 0;
    file[at - (central ? 36 : 22)] = 8;
  }
  EXPECT_THAT(error_of([&] { parsed(file); }), HasSubstr("is compressed; unpack it"));
}

}  // namespace
}  // namespace ddp::ckpt
