// Puts references in place, drops what is not known and keeps track of what that makes laxer.

// g++ 12 sees uninitialised members in <regex> when it compiles for a sanitizer.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "server/flows/schema_reducer.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/flows/json_document.h"

namespace callboard::server {
namespace {

namespace json = boost::json;

constexpr int kReducedDepthMax = 32;  // with references put in place
constexpr size_t kReducedNodesMax = 4'096;
constexpr int kSameReferenceMax = 3;  // how often a schema may contain itself
constexpr int kPatternCostMax = 24;   // log2 of steps, about

// Whether std::regex knows the pattern and cannot run away on kPatternTextMax characters.
bool IsTamePattern(std::string_view pattern) {
  if (pattern.size() > kPatternTextMax) return false;
  int cost = pattern.starts_with('^') ? 0 : 8;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (static_cast<unsigned char>(c) >= 0x80) return false;
    if (c == '\\') {
      // Back references make matching exponential.
      if (++i < pattern.size() && pattern[i] >= '1' && pattern[i] <= '9') return false;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
    } else if (c == '*' || c == '+' || c == '{') {
      if (i > 0 && pattern[i - 1] == ')') return false;
      if (c == '{') {  // std::regex unrolls counts
        const size_t end = pattern.find('}', i);
        if (end == std::string_view::npos || end - i > 6) return false;
        for (size_t digit = i + 1, run = 0; digit < end; ++digit) {
          run = pattern[digit] == ',' ? 0 : run + 1;
          if (run > 2) return false;
        }
      }
      cost += 8;
    } else if ((c == '?' && i > 0 && pattern[i - 1] != '(') || c == '|') {
      ++cost;
    }
  }
  if (cost > kPatternCostMax) return false;
  try {
    std::regex compiled{std::string(pattern)};
    return true;
  } catch (const std::regex_error&) {
    return false;
  }
}

// One pass over one schema.
class Reducer {
 public:
  // `root` is an object and outlives the reducer.
  Reducer(const json::value& root, bool with_patterns)
      : root_value_(root), root_(root.get_object()), with_patterns_(with_patterns) {}

  // False: the dialect is not known.
  bool ReadDialect() {
    const json::value* dialect = root_.if_contains("$schema");
    if (dialect == nullptr) return true;
    if (!dialect->is_string()) return false;
    std::string_view uri(dialect->get_string().data(), dialect->get_string().size());
    if (uri.ends_with('#')) uri.remove_suffix(1);
    for (std::string_view scheme : {"https://", "http://"}) {
      if (uri.starts_with(scheme)) uri.remove_prefix(scheme.size());
    }
    reference_stands_alone_ =
        uri == "json-schema.org/draft-07/schema" || uri == "json-schema.org/draft-06/schema";
    return reference_stands_alone_ || uri == "json-schema.org/draft/2020-12/schema" ||
           uri == "json-schema.org/draft/2019-09/schema";
  }

  json::value Run() { return Reduce(root_value_, 0).schema; }
  size_t nodes() const { return nodes_; }
  bool saw_patterns() const { return saw_patterns_; }

 private:
  struct Reduced {
    json::value schema = json::object();
    bool exact = true;  // accepts the same as the original, not more
  };

  static Reduced Anything() { return {json::object(), false}; }

  Reduced Reduce(const json::value& schema, int depth) {
    if (++nodes_ > kReducedNodesMax || depth > kReducedDepthMax) return Anything();
    if (schema.is_bool()) {
      Reduced reduced;
      if (!schema.get_bool()) reduced.schema.get_object()["not"] = json::object();
      return reduced;
    }
    // Beneath an id of its own references mean something else.
    if (!schema.is_object() || (depth > 0 && schema.get_object().contains("$id"))) {
      return Anything();
    }
    const json::object& source = schema.get_object();
    Reduced reduced;
    json::object& out = reduced.schema.get_object();
    json::array all_of;
    if (const json::value* reference = source.if_contains("$ref")) {
      Reduced target = Follow(*reference, depth);
      if (reference_stands_alone_) return target;
      reduced.exact = target.exact;
      all_of.push_back(std::move(target.schema));
    }
    bool& exact = reduced.exact;
    exact = exact && !HasUnknownAssertion(source);
    exact = CopyValues(source, out) && exact;
    exact = ReduceObjects(source, out, depth) && exact;
    exact = ReduceItems(source, out, depth) && exact;
    exact = ReduceCombinations(source, out, all_of, depth) && exact;
    if (!all_of.empty()) out["allOf"] = std::move(all_of);
    return reduced;
  }

  static bool HasUnknownAssertion(const json::object& source) {
    static constexpr std::array<const char*, 17> kUnknown = {
        "$dynamicRef",       "$recursiveRef", "if",
        "dependentRequired", "contains",      "dependentSchemas",
        "dependencies",      "minContains",   "maxContains",
        "propertyNames",     "prefixItems",   "unevaluatedProperties",
        "unevaluatedItems",  "uniqueItems",   "additionalItems",
        "patternProperties", "$vocabulary"};
    return std::any_of(kUnknown.begin(), kUnknown.end(),
                       [&](const char* keyword) { return source.contains(keyword); });
  }

  Reduced Follow(const json::value& reference, int depth) {
    if (!reference.is_string()) return Anything();
    const std::string pointer(reference.get_string().begin(), reference.get_string().end());
    const bool local = pointer == "#" || pointer.starts_with("#/");
    if (!local || pointer.find('%') != std::string::npos ||
        std::count(references_.begin(), references_.end(), pointer) >= kSameReferenceMax) {
      return Anything();
    }
    const json::value* target = Find(std::string_view(pointer).substr(1));
    if (pointer != "#" && target == nullptr) return Anything();
    references_.push_back(pointer);
    Reduced reduced = target != nullptr       ? Reduce(*target, depth + 1)
                      : root_.contains("$id") ? Anything()
                                              : Reduce(root_value_, depth + 1);
    references_.pop_back();
    return reduced;
  }

  // The value at a JSON pointer; nullptr if there is none or it is the root.
  const json::value* Find(std::string_view pointer) const {
    const json::value* at = nullptr;
    const json::object* object = &root_;
    while (!pointer.empty()) {
      const size_t end = std::min(pointer.find('/', 1), pointer.size());
      std::string step;
      for (size_t i = 1; i < end; ++i) {
        if (pointer[i] == '~' && i + 1 < end) {
          step += pointer[++i] == '1' ? '/' : '~';
        } else {
          step += pointer[i];
        }
      }
      if (object == nullptr) return nullptr;
      // An id on the way begins another document.
      if (at != nullptr && object->contains("$id")) return nullptr;
      at = object->if_contains(step);
      if (at == nullptr) return nullptr;
      object = at->if_object();
      pointer.remove_prefix(end);
    }
    return at;
  }

  static bool IsType(const json::value& value) {
    static constexpr std::array<std::string_view, 7> kTypes = {
        "null", "boolean", "object", "array", "number", "string", "integer"};
    if (!value.is_string()) return false;
    const std::string_view name(value.get_string().data(), value.get_string().size());
    return std::find(kTypes.begin(), kTypes.end(), name) != kTypes.end();
  }

  // What a value that is copied counts for in kReducedNodesMax: references multiply it.
  static size_t Weight(const json::value& value) {
    size_t weight = 0;
    if (value.is_string()) weight = value.get_string().size() / 256;
    if (value.is_array()) {
      for (const json::value& each : value.get_array()) weight += 1 + Weight(each);
    } else if (value.is_object()) {
      for (const auto& member : value.get_object()) weight += 1 + Weight(member.value());
    }
    return weight;
  }

  // Keywords that hold plain values. False if one was left out or is taken less strictly.
  bool CopyValues(const json::object& source, json::object& out) {
    bool exact = true;
    auto copy = [&](const char* keyword, auto fits) {
      const json::value* value = source.if_contains(keyword);
      if (value == nullptr) return;
      if (fits(*value) && (nodes_ += Weight(*value)) <= kReducedNodesMax) {
        out[keyword] = *value;
      } else {
        exact = false;
      }
    };
    auto all = [](const json::value& value, auto fits) {
      return value.is_array() &&
             std::all_of(value.get_array().begin(), value.get_array().end(), fits);
    };
    auto is_text = [](const json::value& value) { return value.is_string(); };
    copy("type", [&](const json::value& value) {
      return IsType(value) || (all(value, IsType) && !value.get_array().empty());
    });
    copy("enum", [](const json::value& v) { return v.is_array() && !v.get_array().empty(); });
    copy("const", [](const json::value&) { return true; });
    copy("required", [&](const json::value& value) { return all(value, is_text); });
    for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
      copy(keyword, [](const json::value& value) { return value.is_number(); });
    }
    for (const char* keyword :
         {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}) {
      copy(keyword, [](const json::value& v) { return v.is_int64() && v.get_int64() >= 0; });
    }
    // The last two are checked less strictly than they say.
    copy("multipleOf", [](const json::value& v) { return v.is_int64() && v.get_int64() > 0; });
    copy("pattern", [&](const json::value& value) {
      saw_patterns_ = true;
      return with_patterns_ && value.is_string() &&
             IsTamePattern({value.get_string().data(), value.get_string().size()});
    });
    return exact && !source.contains("multipleOf") && !source.contains("pattern");
  }

  bool ReduceObjects(const json::object& source, json::object& out, int depth) {
    bool exact = true;
    if (const json::value* properties = source.if_contains("properties")) {
      if (!properties->is_object()) return false;
      json::object& kept = out["properties"].emplace_object();
      for (const auto& [name, schema] : properties->get_object()) {
        Reduced reduced = Reduce(schema, depth + 1);
        exact = exact && reduced.exact;
        kept[name] = std::move(reduced.schema);
      }
    }
    const json::value* additional = source.if_contains("additionalProperties");
    if (additional == nullptr || source.contains("patternProperties")) return exact;
    if (additional->is_bool()) {
      out["additionalProperties"] = *additional;
      return exact;
    }
    Reduced reduced = Reduce(*additional, depth + 1);
    out["additionalProperties"] = std::move(reduced.schema);
    return exact && reduced.exact;
  }

  bool ReduceItems(const json::object& source, json::object& out, int depth) {
    const json::value* items = source.if_contains("items");
    if (items == nullptr) return true;
    if (items->is_array() || source.contains("prefixItems")) return false;
    Reduced reduced = Reduce(*items, depth + 1);
    out["items"] = std::move(reduced.schema);
    return reduced.exact;
  }

  bool ReduceCombinations(const json::object& source, json::object& out, json::array& all_of,
                          int depth) {
    bool exact = true;
    auto reduce_each = [&](const json::value& schemas, json::array& kept) {
      bool each_exact = true;
      for (const json::value& schema : schemas.get_array()) {
        Reduced reduced = Reduce(schema, depth + 1);
        each_exact = each_exact && reduced.exact;
        kept.push_back(std::move(reduced.schema));
      }
      exact = exact && each_exact;
      return each_exact;
    };
    for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
      const json::value* schemas = source.if_contains(keyword);
      if (schemas == nullptr) continue;
      if (!schemas->is_array() || schemas->get_array().empty()) {
        exact = false;
        continue;
      }
      if (keyword == std::string_view("allOf")) {
        reduce_each(*schemas, all_of);
        continue;
      }
      json::array kept;
      // More than one may match what accepts more: "exactly one" becomes "at least one".
      if (reduce_each(*schemas, kept) || keyword == std::string_view("anyOf")) {
        out[keyword] = std::move(kept);
      } else {
        all_of.push_back(json::object{{"anyOf", std::move(kept)}});
      }
    }
    if (const json::value* schema = source.if_contains("not")) {
      Reduced reduced = Reduce(*schema, depth + 1);
      if (reduced.exact) {
        out["not"] = std::move(reduced.schema);
      } else {
        exact = false;
      }
    }
    return exact;
  }

  const json::value& root_value_;
  const json::object& root_;
  const bool with_patterns_;
  bool reference_stands_alone_ = false;  // before 2019-09 what stands beside $ref is ignored
  bool saw_patterns_ = false;
  size_t nodes_ = 0;
  std::vector<std::string> references_;  // being followed
};

}  // namespace

std::optional<ReducedSchema> ReduceSchema(const json::value& schema, bool with_patterns) {
  if (!schema.is_object()) return std::nullopt;
  Reducer reducer(schema, with_patterns);
  if (!reducer.ReadDialect()) return std::nullopt;
  json::value reduced = reducer.Run();
  return ReducedSchema{std::move(reduced), reducer.nodes(), reducer.saw_patterns()};
}

}  // namespace callboard::server
