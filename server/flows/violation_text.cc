// Finds what each finding is about by following its place through value and schema.
#include "server/flows/violation_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"

namespace callboard::server {
namespace {

namespace json = boost::json;

constexpr size_t kViolationsMax = 5;
constexpr size_t kShownBytesMax = 60;
constexpr size_t kShownNamesMax = 10;

std::string Shown(const json::value& value) {
  std::string text = json::serialize(value);
  if (text.size() <= kShownBytesMax) return text;
  size_t cut = kShownBytesMax;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return text.substr(0, cut) + "...";
}

std::string_view TypeName(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "boolean";
    case json::kind::string:
      return "string";
    case json::kind::array:
      return "array";
    case json::kind::object:
      return "object";
    case json::kind::int64:
    case json::kind::uint64:
      return "integer";
    case json::kind::double_:
      return "number";
  }
  return "value";
}

std::string Got(const json::value& value) {
  if (value.is_null()) return "got null";
  if (value.is_structured() && Shown(value).size() > kShownBytesMax) {
    return fmt::format("got {}", TypeName(value));
  }
  return fmt::format("got {} {}", TypeName(value), Shown(value));
}

std::string Joined(const std::vector<std::string>& parts, std::string_view last) {
  std::string text;
  const size_t shown = std::min(parts.size(), kShownNamesMax);
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == parts.size() ? fmt::format(" {} ", last) : ", ";
    text += parts[i];
  }
  if (parts.size() > shown) text += fmt::format(", ... ({} in all)", parts.size());
  return text;
}

// Words one violation by looking up the place in value and schema that valijson names.
class Explainer {
 public:
  Explainer(const json::value& schema, const json::value& value) : schema_(schema), value_(value) {}

  std::vector<std::string> Explain(std::vector<RawViolation> raw) const {
    std::vector<RawViolation> errors;
    for (RawViolation& error : raw) {
      if (IsChoice(error.description)) {
        // The reasons of each alternative came before; the choice as a whole says it better.
        std::erase_if(errors, [&](const auto& earlier) {
          return earlier.context.size() >= error.context.size() &&
                 std::equal(error.context.begin(), error.context.end(), earlier.context.begin());
        });
      }
      errors.push_back(std::move(error));
    }
    std::vector<std::string> violations;
    for (const auto& found : errors) {
      std::string violation = Violation(found);
      if (violation.empty() ||
          std::find(violations.begin(), violations.end(), violation) != violations.end()) {
        continue;
      }
      if (violations.size() == kViolationsMax) break;
      violations.push_back(std::move(violation));
    }
    if (violations.empty()) violations.push_back("they do not match the tool's input schema");
    return violations;
  }

 private:
  static bool IsChoice(std::string_view description) {
    return description.find("anyOf constraint") != std::string_view::npos ||
           description.find("allowed by oneOf") != std::string_view::npos;
  }

  // What stands between the first and the last quote.
  static std::string Quoted(std::string_view description, std::string_view from) {
    const size_t begin = description.find(from);
    const size_t end = description.rfind('\'');
    if (begin == std::string_view::npos || end < begin + from.size()) return {};
    return std::string(description.substr(begin + from.size(), end - begin - from.size()));
  }

  static std::string PointerStep(std::string_view name) {
    std::string step = "/";
    for (char c : name) {
      step += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    }
    return step;
  }

  // The schema nodes that bind the place, with those that "allOf" adds.
  static void Add(const json::value& schema, std::vector<const json::object*>& nodes) {
    const json::object* node = schema.if_object();
    if (node == nullptr) return;
    nodes.push_back(node);
    if (const json::value* all = node->if_contains("allOf"); all != nullptr && all->is_array()) {
      for (const json::value& each : all->get_array()) Add(each, nodes);
    }
  }

  static bool Requires(const json::object& node, std::string_view name) {
    const json::value* required = node.if_contains("required");
    if (required == nullptr || !required->is_array()) return false;
    return std::any_of(
        required->get_array().begin(), required->get_array().end(), [&](const json::value& each) {
          const json::string* text = each.if_string();
          return text != nullptr && std::string_view(text->data(), text->size()) == name;
        });
  }

  std::string Violation(const RawViolation& error) const {
    std::string pointer;
    const json::value* value = &value_;
    bool optional = false;  // a member that its object need not have
    std::vector<const json::object*> nodes;
    Add(schema_, nodes);
    for (size_t i = 1; i < error.context.size(); ++i) {
      const std::string& bracketed = error.context[i];
      if (bracketed.size() < 2) return {};
      const std::string name = bracketed.substr(1, bracketed.size() - 2);
      std::vector<const json::object*> next;
      for (const json::object* node : nodes) {
        const json::value* properties = node->if_contains("properties");
        const json::value* inner =
            value->is_array() ? node->if_contains("items")
            : properties != nullptr && properties->get_object().contains(name)
                ? &properties->get_object().at(name)
                : node->if_contains("additionalProperties");
        if (inner != nullptr) Add(*inner, next);
      }
      optional = value->is_object() &&
                 std::none_of(nodes.begin(), nodes.end(),
                              [&](const json::object* node) { return Requires(*node, name); });
      nodes = std::move(next);
      pointer += PointerStep(name);
      size_t index = 0;
      if (value->is_object()) {
        value = value->get_object().if_contains(name);
      } else if (value->is_array() && absl::SimpleAtoi(name, &index)) {
        value = value->get_array().if_contains(index);
      } else {
        value = nullptr;
      }
      if (value == nullptr) return {};
    }
    std::string text = Word(error.description, pointer, *value, nodes);
    // Some clients fill in every member that they have no value for.
    if (!text.empty() && optional && value->is_null()) text += " (leave it out: it is optional)";
    return text;
  }

  static std::string Word(std::string_view description, const std::string& pointer,
                          const json::value& value, const std::vector<const json::object*>& nodes) {
    const std::string at = pointer.empty() ? "/" : pointer;
    if (description.starts_with("Failed to validate against schema associated") ||
        description.starts_with("Failed to validate item") ||
        description.starts_with("Failed to validate against child schema") ||
        description.starts_with("Failed to validate against additional")) {
      return {};  // says where only; the reason has an entry of its own
    }
    if (description.starts_with("Missing required property")) {
      return fmt::format("{}{}: required, but missing", pointer,
                         PointerStep(Quoted(description, "property '")));
    }
    if (description.starts_with("Object contains a property")) {
      std::vector<std::string> known;
      for (const json::object* node : nodes) {
        const json::value* properties = node->if_contains("properties");
        if (properties == nullptr || !node->contains("additionalProperties")) continue;
        for (const auto& property : properties->get_object()) {
          known.emplace_back(property.key().data(), property.key().size());
        }
      }
      return fmt::format(
          "{}{}: unknown property; {}", pointer, PointerStep(Quoted(description, "constraints: '")),
          known.empty() ? "none is allowed" : fmt::format("known are {}", Joined(known, "and")));
    }
    std::string expected = Expected(description, value, nodes);
    if (expected.empty()) {
      expected = fmt::format("{}", description);
      if (expected.ends_with('.')) expected.pop_back();
    }
    return fmt::format("{}: {}, {}", at, expected, Got(value));
  }

  // False if the node says nothing of types.
  static bool AddTypes(const json::object& node, std::vector<std::string>& types) {
    const json::value* type = node.if_contains("type");
    if (type == nullptr) return false;
    auto add = [&](const json::value& name) {
      std::string text(name.get_string().begin(), name.get_string().end());
      if (std::find(types.begin(), types.end(), text) == types.end()) types.push_back(text);
    };
    if (type->is_string()) {
      add(*type);
    } else {
      for (const json::value& name : type->get_array()) add(name);
    }
    return true;
  }

  static std::string Expected(std::string_view description, const json::value& value,
                              const std::vector<const json::object*>& nodes) {
    for (const json::object* node : nodes) {
      auto keyword = [&](const char* name) { return node->if_contains(name); };
      std::vector<std::string> parts;
      if (description.starts_with("Value type not permitted")) {
        AddTypes(*node, parts);
        if (!parts.empty()) return "expected " + Joined(parts, "or");
      } else if (description.starts_with("Failed to match against any enum")) {
        if (const json::value* values = keyword("enum")) {
          for (const json::value& each : values->get_array()) parts.push_back(Shown(each));
          return "expected one of " + Joined(parts, "or");
        }
      } else if (description.starts_with("Failed to match expected value")) {
        if (const json::value* constant = keyword("const")) return "expected " + Shown(*constant);
      } else if (description.starts_with("Failed to match regex")) {
        if (const json::value* pattern = keyword("pattern")) {
          return "expected a text that matches " + Shown(*pattern);
        }
      } else if (description.starts_with("Expected number")) {
        std::string bound = BrokenBound(*node, value);
        if (!bound.empty()) return bound;
      } else if (IsChoice(description)) {
        std::string choice = Choice(*node, value);
        if (!choice.empty()) return choice;
      }
    }
    return {};
  }

  static std::string BrokenBound(const json::object& node, const json::value& value) {
    const double number = value.to_number<double>();
    auto broken = [&](const char* keyword, std::string_view sign, auto holds) -> std::string {
      const json::value* bound = node.if_contains(keyword);
      if (bound == nullptr || holds(bound->to_number<double>())) return {};
      return fmt::format("expected a number {} {}", sign, Shown(*bound));
    };
    for (std::string text :
         {broken("minimum", ">=", [&](double b) { return number >= b; }),
          broken("maximum", "<=", [&](double b) { return number <= b; }),
          broken("exclusiveMinimum", ">", [&](double b) { return number > b; }),
          broken("exclusiveMaximum", "<", [&](double b) { return number < b; })}) {
      if (!text.empty()) return text;
    }
    return {};
  }

  // "expected number or null" if each alternative is told by its type, else that none fits.
  static std::string Choice(const json::object& node, const json::value& value) {
    std::vector<std::string> types;
    bool typed = false;
    for (const char* keyword : {"anyOf", "oneOf"}) {
      const json::value* choices = node.if_contains(keyword);
      if (choices == nullptr) continue;
      typed = true;
      for (const json::value& choice : choices->get_array()) {
        std::vector<const json::object*> nodes;
        Add(choice, nodes);
        bool says_types = false;
        for (const json::object* each : nodes) says_types = AddTypes(*each, types) || says_types;
        typed = typed && says_types;
      }
    }
    if (types.empty()) return {};
    const std::string_view own = TypeName(value);
    const bool of_a_type = std::any_of(types.begin(), types.end(), [&](const std::string& type) {
      return type == own || (type == "number" && own == "integer");
    });
    if (typed && !of_a_type) return "expected " + Joined(types, "or");
    return "none of the allowed forms (" + Joined(types, "or") + ") fits";
  }

  const json::value& schema_;
  const json::value& value_;
};

}  // namespace

std::vector<std::string> ExplainViolations(const json::value& schema, const json::value& value,
                                           std::vector<RawViolation> violations) {
  return Explainer(schema, value).Explain(std::move(violations));
}

}  // namespace callboard::server
