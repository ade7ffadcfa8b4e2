// Frames of every protocol version stay readable: each item kind has a stored frame with every
// field set.
//
// tests/golden/wire/v<N>/<direction>.<item>.{hex,txtpb} hold the bytes and what they mean. A later
// build must parse the bytes to the same meaning. CALLBOARD_UPDATE_GOLDEN=1 (tools/update_golden)
// writes files for items that have none; it never changes an existing one.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "callboard/v1/agent.pb.h"

namespace callboard {
namespace {

namespace pb = google::protobuf;

std::string GoldenFolder() { return std::string(CALLBOARD_SOURCE_DIR) + "/tests/golden/wire/v1"; }

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string ToHex(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
    if (i % 48 == 47) hex.push_back('\n');
  }
  hex.push_back('\n');
  return hex;
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  std::string pair;
  for (char c : hex) {
    if (c == '\n') continue;
    pair.push_back(c);
    if (pair.size() == 2) {
      bytes.push_back(static_cast<char>(std::stoi(pair, nullptr, 16)));
      pair.clear();
    }
  }
  return bytes;
}

// Sets every field to a value that names its number; of a oneof the field `keep` picks (by index).
void Fill(pb::Message* message, int oneof_index) {
  const auto* reflection = message->GetReflection();
  const auto* descriptor = message->GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const pb::FieldDescriptor* field = descriptor->field(i);
    if (const auto* oneof = field->real_containing_oneof()) {
      if (field != oneof->field(oneof_index % oneof->field_count())) continue;
    }
    const int number = field->number();
    if (field->is_map()) {
      pb::Message* entry = reflection->AddMessage(message, field);
      Fill(entry, 0);
      continue;
    }
    const bool repeated = field->is_repeated();
    switch (field->cpp_type()) {
#define CALLBOARD_FILL(CPPTYPE, Method, value)                 \
  case pb::FieldDescriptor::CPPTYPE:                           \
    repeated ? reflection->Add##Method(message, field, value)  \
             : reflection->Set##Method(message, field, value); \
    break;
      CALLBOARD_FILL(CPPTYPE_INT32, Int32, 1000 + number)
      CALLBOARD_FILL(CPPTYPE_INT64, Int64, 100'000'000'000 + number)
      CALLBOARD_FILL(CPPTYPE_UINT32, UInt32, 2000u + static_cast<uint32_t>(number))
      CALLBOARD_FILL(CPPTYPE_UINT64, UInt64, 200'000'000'000u + static_cast<uint64_t>(number))
      CALLBOARD_FILL(CPPTYPE_DOUBLE, Double, 0.5 + number)
      CALLBOARD_FILL(CPPTYPE_FLOAT, Float, 0.25f)
      CALLBOARD_FILL(CPPTYPE_BOOL, Bool, true)
      CALLBOARD_FILL(CPPTYPE_STRING, String, field->name() + std::to_string(number))
#undef CALLBOARD_FILL
      case pb::FieldDescriptor::CPPTYPE_ENUM: {
        const auto* value = field->enum_type()->value(1);
        repeated ? reflection->AddEnum(message, field, value)
                 : reflection->SetEnum(message, field, value);
        break;
      }
      case pb::FieldDescriptor::CPPTYPE_MESSAGE:
        Fill(repeated ? reflection->AddMessage(message, field)
                      : reflection->MutableMessage(message, field),
             oneof_index);
        break;
    }
  }
}

std::string Serialize(const pb::Message& message) {
  std::string bytes;
  pb::io::StringOutputStream stream(&bytes);
  pb::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

// One stored frame: an item kind, and for items with inner oneofs each of their choices.
template <class Frame, class Item>
void CheckGoldenFrames(const std::string& direction) {
  const bool update = std::getenv("CALLBOARD_UPDATE_GOLDEN") != nullptr;
  const auto* oneof = Item::descriptor()->oneof_decl(0);
  for (int i = 0; i < oneof->field_count(); ++i) {
    const pb::FieldDescriptor* kind = oneof->field(i);
    // CallEvent has the widest inner oneof; Notice has had a field more since its first two.
    const int variants = kind->message_type() == v1::CallEvent::descriptor() ? 9
                         : kind->message_type() == v1::Notice::descriptor()  ? 3
                                                                             : 2;
    for (int variant = 0; variant < variants; ++variant) {
      const std::string base =
          GoldenFolder() + "/" + direction + "." + kind->name() + "." + std::to_string(variant);
      if (update && !std::filesystem::exists(base + ".hex")) {
        Frame frame;
        frame.set_received(4711);
        Item* item = frame.add_items();
        Fill(item->GetReflection()->MutableMessage(item, kind), variant);
        std::string text;
        pb::TextFormat::PrintToString(frame, &text);
        std::ofstream(base + ".hex") << ToHex(Serialize(frame));
        std::ofstream(base + ".txtpb") << text;
      }
      SCOPED_TRACE(base);
      const std::string bytes = FromHex(ReadFile(base + ".hex"));
      ASSERT_FALSE(bytes.empty()) << "no golden frame; run tools/update_golden";
      Frame frame;
      ASSERT_TRUE(frame.ParseFromString(bytes));
      ASSERT_EQ(frame.items_size(), 1);
      EXPECT_EQ(frame.received(), 4711u);
      std::string text;
      pb::TextFormat::PrintToString(frame, &text);
      EXPECT_EQ(text, ReadFile(base + ".txtpb"));
      EXPECT_EQ(Serialize(frame), bytes) << "the same meaning must give the same bytes";
    }
  }
}

TEST(GoldenFrames, EveryAgentItemOfVersion1StillMeansTheSame) {
  CheckGoldenFrames<v1::AgentFrame, v1::AgentItem>("agent");
}

TEST(GoldenFrames, EveryServerItemOfVersion1StillMeansTheSame) {
  CheckGoldenFrames<v1::ServerFrame, v1::ServerItem>("server");
}

TEST(GoldenFrames, UnknownItemsOfALaterVersionAreSkipped) {
  // A frame with one item whose kind (field 99) this build does not know.
  const std::string bytes = std::string("\x08\x05\x12\x05\x9a\x06\x02\x08\x01", 9);
  v1::ServerFrame frame;
  ASSERT_TRUE(frame.ParseFromString(bytes));
  ASSERT_EQ(frame.items_size(), 1);
  EXPECT_EQ(frame.items(0).item_case(), v1::ServerItem::ITEM_NOT_SET);
  EXPECT_EQ(frame.received(), 5u);
}

}  // namespace
}  // namespace callboard
