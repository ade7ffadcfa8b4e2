// Implementation of the arguments that are repeated in headers.
#include "core/mcp/mirrored_arguments.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "core/mcp/json.h"
#include "core/mcp/mirror_header.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::core {
namespace {

constexpr std::string_view kAnnotation = "x-mcp-header";
constexpr int kDepthMax = 16;
constexpr size_t kShownBytesMax = 64;

// Where a schema stands in that of the tool.
enum class Place { kRoot, kProperty, kElsewhere };

// Of what a keyword has schemas.
enum class Holds { kNone, kProperties, kOneOrMany, kByName };

Holds WhatHolds(const JsonMember& keyword) {
  constexpr std::array<std::string_view, 16> kOneOrMany = {"items",
                                                           "additionalProperties",
                                                           "anyOf",
                                                           "oneOf",
                                                           "allOf",
                                                           "not",
                                                           "if",
                                                           "then",
                                                           "else",
                                                           "contains",
                                                           "prefixItems",
                                                           "propertyNames",
                                                           "additionalItems",
                                                           "unevaluatedItems",
                                                           "unevaluatedProperties",
                                                           "contentSchema"};
  constexpr std::array<std::string_view, 4> kByName = {"$defs", "definitions", "patternProperties",
                                                       "dependentSchemas"};
  const auto is = [&keyword](std::string_view name) { return keyword.Is(name); };
  if (is("properties")) return Holds::kProperties;
  if (std::any_of(kOneOrMany.begin(), kOneOrMany.end(), is)) return Holds::kOneOrMany;
  if (std::any_of(kByName.begin(), kByName.end(), is)) return Holds::kByName;
  return Holds::kNone;
}

std::string KeyOf(const JsonMember& member) {
  if (!member.key_escaped) return std::string(member.key);
  return DecodeString(fmt::format("\"{}\"", member.key)).value_or("");
}

// The schema with what `visit` makes of each one inside it that may have annotations, itself first.
using Visit = absl::FunctionRef<std::string(std::string_view schema, Place place)>;
std::string Rewrite(std::string_view schema, Place place, int depth, Visit visit) {
  if (!IsObject(schema) || !MayMirror(schema) || depth > 2 * kDepthMax) return std::string(schema);
  std::string text = visit(schema, depth > kDepthMax ? Place::kElsewhere : place);
  (void)ForEachMember(schema, [&](const JsonMember& keyword) {
    const Holds holds = WhatHolds(keyword);
    if (holds == Holds::kNone || !MayMirror(keyword.value)) return true;
    std::string value(keyword.value);
    if (holds == Holds::kOneOrMany && IsArray(keyword.value)) {
      std::string elements = "[";
      bool changed = false;
      (void)ForEachElement(keyword.value, [&](std::string_view element) {
        const std::string inner = Rewrite(element, Place::kElsewhere, depth + 1, visit);
        changed = changed || inner != element;
        elements.append(elements.size() > 1 ? "," : "").append(inner);
        return true;
      });
      if (changed) value = elements + "]";
    } else if (holds == Holds::kOneOrMany) {
      value = Rewrite(keyword.value, Place::kElsewhere, depth + 1, visit);
    } else if (IsObject(keyword.value)) {
      const bool reached = holds == Holds::kProperties && place != Place::kElsewhere;
      (void)ForEachMember(keyword.value, [&](const JsonMember& member) {
        const std::string inner =
            Rewrite(member.value, reached ? Place::kProperty : Place::kElsewhere, depth + 1, visit);
        if (inner != member.value) value = SetMember(value, KeyOf(member), inner);
        return true;
      });
    }
    if (value != keyword.value) text = SetMember(text, KeyOf(keyword), value);
    return true;
  });
  return text;
}

// What is wrong with a schema's own annotation, apart from its uniqueness; "" if nothing is.
std::string FaultOf(std::string_view schema, std::string_view raw, Place place) {
  const auto name = DecodeString(raw);
  if (!name) return fmt::format("{} is no text", raw.substr(0, kShownBytesMax));
  const std::string shown = QuoteJson(std::string_view(*name).substr(0, kShownBytesMax));
  if (!IsHeaderToken(*name)) return fmt::format("{} can be no part of a header's name", shown);
  if (place != Place::kProperty) {
    return fmt::format("{} is not at a property that is reached by 'properties' alone", shown);
  }
  const auto type = FindString(schema, "type");
  if (type == "string" || type == "integer" || type == "boolean") return "";
  return fmt::format("{} is at a property that is no string, integer or boolean", shown);
}

// How many sound annotations have a name, by the name in lower case.
using Names = std::map<std::string, int>;

Names CountNames(std::string_view input_schema) {
  Names names;
  Rewrite(input_schema, Place::kRoot, 0, [&names](std::string_view schema, Place place) {
    const auto raw = FindMember(schema, kAnnotation);
    if (raw && FaultOf(schema, *raw, place).empty()) {
      ++names[absl::AsciiStrToLower(ToAbsl(DecodeString(*raw).value_or("")))];
    }
    return std::string(schema);
  });
  return names;
}

std::string FaultAmong(const Names& names, std::string_view schema, Place place) {
  const auto raw = FindMember(schema, kAnnotation);
  if (!raw) return "";
  std::string fault = FaultOf(schema, *raw, place);
  if (!fault.empty()) return fault;
  const std::string name = DecodeString(*raw).value_or("");
  const auto counted = names.find(absl::AsciiStrToLower(ToAbsl(name)));
  if (counted != names.end() && counted->second > 1) {
    return fmt::format("{} is there more than once", QuoteJson(name));
  }
  return fault;
}

void Collect(std::string_view schema, std::string_view value, int depth, const Names& names,
             std::map<std::string, MirroredArgument>* found) {
  const auto properties = FindMember(schema, "properties");
  if (!properties || depth >= kDepthMax || !MayMirror(*properties)) return;
  (void)ForEachMember(*properties, [&](const JsonMember& property) {
    if (!IsObject(property.value)) return true;
    std::string_view argument = FindMember(value, KeyOf(property)).value_or("");
    if (argument == "null") argument = {};
    const auto header = FindString(property.value, kAnnotation);
    if (header && FaultAmong(names, property.value, Place::kProperty).empty()) {
      found->try_emplace(absl::AsciiStrToLower(ToAbsl(*header)),
                         MirroredArgument{*header, argument});
    }
    Collect(property.value, argument, depth + 1, names, found);
    return true;
  });
}

}  // namespace

bool MayMirror(std::string_view text) { return text.find(kAnnotation) != text.npos; }

std::vector<MirroredArgument> FindMirroredArguments(std::string_view input_schema,
                                                    std::string_view arguments) {
  if (!MayMirror(input_schema)) return {};
  std::map<std::string, MirroredArgument> found;
  Collect(input_schema, arguments, 0, CountNames(input_schema), &found);
  std::vector<MirroredArgument> mirrored;
  mirrored.reserve(found.size());
  for (auto& [lower, argument] : found) mirrored.push_back(std::move(argument));
  return mirrored;
}

std::string FindMirrorFault(std::string_view input_schema) {
  if (!MayMirror(input_schema)) return "";
  const Names names = CountNames(input_schema);
  std::string fault;
  Rewrite(input_schema, Place::kRoot, 0, [&](std::string_view schema, Place place) {
    if (fault.empty()) fault = FaultAmong(names, schema, place);
    return std::string(schema);
  });
  return fault;
}

std::string RemoveMirrorFaults(std::string_view input_schema) {
  const Names names = CountNames(input_schema);
  return Rewrite(input_schema, Place::kRoot, 0, [&](std::string_view schema, Place place) {
    return FaultAmong(names, schema, place).empty() ? std::string(schema)
                                                    : RemoveMember(schema, kAnnotation);
  });
}

}  // namespace callboard::core
