//! What is told of a `$jsonSchema` that a document does not conform to: the rules that failed, in MongoDB's order.
//!
//! Invariants: a rule is told of only for values of the type it speaks of, and for properties that are there; of elements
//! and properties that share a rule, the first that fails it. Below `not` and negations nothing is told of what matched.

use super::{Considered, Teller, consider_types, count};
use crate::matcher::Schema;
use crate::matcher::regex::RegexPredicate;
use crate::matcher::schema::first_duplicate;
use baton_types::Result;
use bson::{Bson, Document, RawArray, RawBsonRef, RawDocument, RawDocumentBuf, doc};

/// Keywords that restrict a value by itself, and what is told of it; arrays and objects follow in between.
const SCALARS: [(&str, &str); 6] = [
    ("pattern", "regular expression did not match"),
    ("maxLength", "specified string length was not satisfied"),
    ("minLength", "specified string length was not satisfied"),
    ("multipleOf", "considered value is not a multiple of the specified value"),
    ("maximum", "comparison failed"),
    ("minimum", "comparison failed"),
];

impl Teller<'_> {
    /// What is told of `$jsonSchema`.
    pub(super) fn tell_schema(&self, schema: &RawDocument, document: &RawDocument, inverted: bool) -> Result<Document> {
        let mut details = doc! { "operatorName": "$jsonSchema" };
        let (value, object) = (RawBsonRef::Document(document), RawDocumentBuf::new());
        for keyword in ["type", "bsonType"] {
            if let Some(types) = schema.get(keyword)?
                && !self.accepts(keyword, types, RawBsonRef::Document(&object))?
            {
                self.specify(&mut details, doc! { "$jsonSchema": Document::try_from(schema)? });
                details.insert("reason", "expression always evaluates to false");
                return Ok(details);
            }
        }
        if inverted {
            details.insert("reason", "schema matched");
            return Ok(details);
        }
        annotate(&mut details, schema)?;
        details.insert("schemaRulesNotSatisfied", self.rules(schema, value, true)?);
        Ok(details)
    }

    /// The rules of a schema that a value fails.
    fn rules(&self, schema: &RawDocument, value: RawBsonRef<'_>, is_top: bool) -> Result<Vec<Document>> {
        let mut failed = Vec::new();
        for (keyword, reason) in SCALARS {
            self.single(schema, keyword, reason, value, &mut failed)?;
        }
        if let RawBsonRef::Array(array) = value {
            self.array_rules(schema, array, &mut failed)?;
        }
        if let RawBsonRef::Document(object) = value {
            self.object_rules(schema, object, &mut failed)?;
        }
        self.logical_rules(schema, value, is_top, &mut failed)?;
        if !is_top {
            for keyword in ["type", "bsonType"] {
                let before = failed.len();
                self.single(schema, keyword, "type did not match", value, &mut failed)?;
                if let Some(told) = failed.get_mut(before) {
                    consider_types(told, &[value]);
                }
            }
        }
        Ok(failed)
    }

    /// Tells of a keyword that restricts a value by itself, if the value fails it.
    fn single(
        &self,
        schema: &RawDocument,
        keyword: &str,
        reason: &str,
        value: RawBsonRef<'_>,
        failed: &mut Vec<Document>,
    ) -> Result<()> {
        let Some(argument) = schema.get(keyword)? else { return Ok(()) };
        let mut rule = Document::new();
        rule.insert(keyword, Bson::try_from(argument)?);
        let exclusive = match keyword {
            "maximum" => "exclusiveMaximum",
            "minimum" => "exclusiveMinimum",
            _ => "",
        };
        if schema.get(exclusive)? == Some(RawBsonRef::Boolean(true)) {
            rule.insert(exclusive, true);
        }
        if Schema::parse(&RawDocumentBuf::try_from(&rule)?, self.ctx)?.accepts(value, &self.ctx.interruption)? {
            return Ok(());
        }
        let mut told = doc! { "operatorName": keyword };
        self.specify(&mut told, rule);
        told.insert("reason", reason);
        self.consider(&mut told, &Considered { values: vec![value], is_cut: false })?;
        failed.push(told);
        Ok(())
    }

    fn array_rules(&self, schema: &RawDocument, array: &RawArray, failed: &mut Vec<Document>) -> Result<()> {
        let value = RawBsonRef::Array(array);
        let elements: Vec<RawBsonRef<'_>> = array.into_iter().collect::<std::result::Result<_, _>>()?;
        for keyword in ["minItems", "maxItems"] {
            let before = failed.len();
            self.single(schema, keyword, "array did not match specified length", value, failed)?;
            if let Some(told) = failed.get_mut(before) {
                told.insert("numberOfItems", count(elements.len()));
            }
        }
        let before = failed.len();
        self.single(schema, "uniqueItems", "found a duplicate item", value, failed)?;
        if let (Some(told), Some(duplicate)) =
            (failed.get_mut(before), first_duplicate(&elements, &self.ctx.interruption)?)
        {
            told.insert("duplicatedValue", Bson::try_from(duplicate)?);
        }
        let mut positions = None;
        match schema.get("items")? {
            Some(RawBsonRef::Document(each)) => {
                let reason = "At least one item did not match the sub-schema";
                failed.extend(self.first_item("items", reason, each, &elements, 0)?);
            }
            Some(RawBsonRef::Array(each)) => {
                let mut details = Vec::new();
                positions = Some(each.into_iter().count());
                for (index, (each, element)) in each.into_iter().zip(&elements).enumerate() {
                    if let RawBsonRef::Document(each) = each?
                        && !self.conforms(each, *element)?
                    {
                        let index = i64::try_from(index).unwrap_or(i64::MAX);
                        details.push(doc! { "itemIndex": index, "details": self.rules(each, *element, false)? });
                    }
                }
                if !details.is_empty() {
                    failed.push(doc! { "operatorName": "items", "details": details });
                }
            }
            _ => {}
        }
        let Some(positions) = positions else { return Ok(()) };
        match schema.get("additionalItems")? {
            Some(RawBsonRef::Boolean(false)) if elements.len() > positions => {
                let mut told = doc! { "operatorName": "additionalItems" };
                self.specify(&mut told, doc! { "additionalItems": false });
                told.insert("reason", "found additional items");
                told.insert("additionalItems", bsons(elements.get(positions..).unwrap_or_default())?);
                failed.push(told);
            }
            Some(RawBsonRef::Document(each)) => {
                let reason = "At least one additional item did not match the sub-schema";
                failed.extend(self.first_item("additionalItems", reason, each, &elements, positions)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// What is told of the first element, from a position on, that fails a schema they share.
    fn first_item(
        &self,
        keyword: &str,
        reason: &str,
        schema: &RawDocument,
        elements: &[RawBsonRef<'_>],
        from: usize,
    ) -> Result<Option<Document>> {
        let parsed = Schema::parse(schema, self.ctx)?;
        for (index, element) in elements.iter().enumerate().skip(from) {
            if !parsed.accepts(*element, &self.ctx.interruption)? {
                let mut told = doc! { "operatorName": keyword };
                annotate(&mut told, schema)?;
                told.insert("reason", reason);
                told.insert("itemIndex", count(index));
                told.insert("details", self.rules(schema, *element, false)?);
                return Ok(Some(told));
            }
        }
        Ok(None)
    }

    fn object_rules(&self, schema: &RawDocument, object: &RawDocument, failed: &mut Vec<Document>) -> Result<()> {
        let properties = schema.get("properties")?.and_then(|p| p.as_document());
        if let Some(properties) = properties {
            failed.extend(self.properties(properties, object)?);
        }
        self.other_properties(schema, properties, object, failed)?;
        if let Some(RawBsonRef::Array(required)) = schema.get("required")? {
            let mut missing = missing_of(required, object)?;
            missing.sort_unstable();
            if !missing.is_empty() {
                let mut told = doc! { "operatorName": "required" };
                self.specify(&mut told, doc! { "required": Bson::try_from(RawBsonRef::Array(required))? });
                told.insert("missingProperties", missing);
                failed.push(told);
            }
        }
        for keyword in ["minProperties", "maxProperties"] {
            if let Some(argument) = schema.get(keyword)?
                && !self.accepts(keyword, argument, RawBsonRef::Document(object))?
            {
                let mut told = doc! { "operatorName": keyword };
                self.specify(&mut told, doc! { keyword: Bson::try_from(argument)? });
                told.insert("reason", "specified number of properties was not satisfied");
                told.insert("numberOfProperties", count(object.iter_elements().count()));
                failed.push(told);
            }
        }
        if let Some(RawBsonRef::Document(dependencies)) = schema.get("dependencies")? {
            failed.extend(self.dependencies(dependencies, object)?);
        }
        Ok(())
    }

    fn properties(&self, properties: &RawDocument, object: &RawDocument) -> Result<Option<Document>> {
        let mut failing = Vec::new();
        for property in properties {
            let (name, schema) = property?;
            let (RawBsonRef::Document(schema), Some(value)) = (schema, object.get(name)?) else { continue };
            let details = self.rules(schema, value, false)?;
            if !details.is_empty() {
                let mut told = doc! { "propertyName": name.as_str() };
                annotate(&mut told, schema)?;
                told.insert("details", details);
                failing.push(told);
            }
        }
        let told = || doc! { "operatorName": "properties", "propertiesNotSatisfied": &failing };
        Ok((!failing.is_empty()).then(told))
    }

    /// `additionalProperties`, then `patternProperties`.
    fn other_properties(
        &self,
        schema: &RawDocument,
        properties: Option<&RawDocument>,
        object: &RawDocument,
        failed: &mut Vec<Document>,
    ) -> Result<()> {
        let mut patterns = Vec::new();
        if let Some(RawBsonRef::Document(by_pattern)) = schema.get("patternProperties")? {
            for element in by_pattern {
                let (pattern, schema) = element?;
                if let RawBsonRef::Document(schema) = schema {
                    patterns.push((pattern.as_str(), RegexPredicate::new(pattern.as_str(), "")?, schema));
                }
            }
        }
        let mut additional = Vec::new();
        for element in object {
            let (name, value) = element?;
            let is_named = match properties {
                Some(properties) => properties.get(name)?.is_some(),
                None => false,
            };
            let mut is_known = is_named;
            for (_, regex, _) in &patterns {
                is_known = is_known || regex.is_found_in(name.as_str(), &self.ctx.interruption)?;
            }
            if !is_known {
                additional.push((name.as_str(), value));
            }
        }
        match schema.get("additionalProperties")? {
            Some(RawBsonRef::Boolean(false)) if !additional.is_empty() => {
                let mut told = doc! { "operatorName": "additionalProperties" };
                self.specify(&mut told, doc! { "additionalProperties": false });
                told.insert("additionalProperties", additional.iter().map(|(name, _)| *name).collect::<Vec<_>>());
                failed.push(told);
            }
            Some(RawBsonRef::Document(each)) => {
                let parsed = Schema::parse(each, self.ctx)?;
                for (name, value) in additional {
                    if !parsed.accepts(value, &self.ctx.interruption)? {
                        let mut told = doc! { "operatorName": "additionalProperties" };
                        annotate(&mut told, each)?;
                        told.insert("reason", "at least one additional property did not match the subschema");
                        told.insert("failingProperty", name);
                        told.insert("details", self.rules(each, value, false)?);
                        failed.push(told);
                        break;
                    }
                }
            }
            _ => {}
        }
        let mut details = Vec::new();
        for (pattern, regex, schema) in &patterns {
            let parsed = Schema::parse(schema, self.ctx)?;
            for element in object {
                let (name, value) = element?;
                if regex.is_found_in(name.as_str(), &self.ctx.interruption)?
                    && !parsed.accepts(value, &self.ctx.interruption)?
                {
                    let mut told = doc! { "propertyName": name.as_str() };
                    annotate(&mut told, schema)?;
                    told.insert("regexMatched", *pattern);
                    told.insert("details", self.rules(schema, value, false)?);
                    details.push(told);
                    break;
                }
            }
        }
        if !details.is_empty() {
            failed.push(doc! { "operatorName": "patternProperties", "details": details });
        }
        Ok(())
    }

    fn dependencies(&self, dependencies: &RawDocument, object: &RawDocument) -> Result<Option<Document>> {
        let mut failing = Vec::new();
        for dependency in dependencies {
            let (name, rule) = dependency?;
            if object.get(name)?.is_none() {
                continue;
            }
            match rule {
                RawBsonRef::Document(schema) if !self.conforms(schema, RawBsonRef::Document(object))? => {
                    let details = self.rules(schema, RawBsonRef::Document(object), false)?;
                    failing.push(doc! { "conditionalProperty": name.as_str(), "details": details });
                }
                RawBsonRef::Array(names) => {
                    let missing = missing_of(names, object)?;
                    if !missing.is_empty() {
                        failing.push(doc! { "conditionalProperty": name.as_str(), "missingProperties": missing });
                    }
                }
                _ => {}
            }
        }
        if failing.is_empty() {
            return Ok(None);
        }
        let mut told = doc! { "operatorName": "dependencies" };
        annotate(&mut told, dependencies)?;
        told.insert("failingDependencies", failing);
        Ok(Some(told))
    }

    fn logical_rules(
        &self,
        schema: &RawDocument,
        value: RawBsonRef<'_>,
        is_top: bool,
        failed: &mut Vec<Document>,
    ) -> Result<()> {
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let Some(RawBsonRef::Array(schemas)) = schema.get(keyword)? else { continue };
            if self.accepts(keyword, RawBsonRef::Array(schemas), value)? {
                continue;
            }
            let (mut matching, mut told) = (Vec::new(), Vec::new());
            for (index, each) in schemas.into_iter().enumerate() {
                let RawBsonRef::Document(each) = each? else { continue };
                if self.conforms(each, value)? {
                    matching.push(count(index));
                    continue;
                }
                let mut one = doc! { "index": count(index) };
                annotate(&mut one, each)?;
                one.insert("details", self.rules(each, value, is_top)?);
                told.push(one);
            }
            failed.push(if keyword == "oneOf" && !matching.is_empty() {
                let reason = "more than one subschema matched";
                doc! { "operatorName": keyword, "reason": reason, "matchingSchemaIndexes": matching }
            } else {
                doc! { "operatorName": keyword, "schemasNotSatisfied": told }
            });
        }
        if let Some(RawBsonRef::Document(not)) = schema.get("not")?
            && self.conforms(not, value)?
        {
            failed.push(doc! { "operatorName": "not", "reason": "child expression matched" });
        }
        self.single(schema, "enum", "value was not found in enum", value, failed)
    }

    /// Whether a value conforms to a schema.
    fn conforms(&self, schema: &RawDocument, value: RawBsonRef<'_>) -> Result<bool> {
        Schema::parse(schema, self.ctx)?.accepts(value, &self.ctx.interruption)
    }

    /// Whether a value conforms to a single keyword.
    fn accepts(&self, keyword: &str, argument: RawBsonRef<'_>, value: RawBsonRef<'_>) -> Result<bool> {
        let schema = doc! { keyword: Bson::try_from(argument)? };
        self.conforms(&RawDocumentBuf::try_from(&schema)?, value)
    }
}

/// A schema's title and description.
fn annotate(told: &mut Document, schema: &RawDocument) -> Result<()> {
    for name in ["title", "description"] {
        if let Some(RawBsonRef::String(text)) = schema.get(name)? {
            told.insert(name, text);
        }
    }
    Ok(())
}

/// The names that an object has no field of.
fn missing_of(names: &RawArray, object: &RawDocument) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for name in names {
        if let RawBsonRef::String(name) = name?
            && object.get(name)?.is_none()
        {
            missing.push(name.to_owned());
        }
    }
    Ok(missing)
}

fn bsons(values: &[RawBsonRef<'_>]) -> Result<Vec<Bson>> {
    Ok(values.iter().map(|value| Bson::try_from(*value)).collect::<std::result::Result<_, _>>()?)
}
