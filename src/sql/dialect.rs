//! The dialect: sqlparser's generic SQL, plus the operators and queries of matrix expressions.
//!
//! ```text
//! tightest   x[i] x.T f(x) ::type     sqlparser's own
//!            ^                        power, from the left
//!            unary -
//!            @ * /                    `@` is the matrix product
//!            + -   = <> < <= > >=   NOT   AND   OR
//! ```
//!
//! `IS DISTINCT FROM` binds as `IS` does. The parser asks `dialect_of!` in some seventy places, so this one calls itself generic and forwards
//! what [`GenericDialect`] overrides; a test compares the two over a corpus.

use std::any::TypeId;

use sqlparser::ast::Expr;
use sqlparser::dialect::{GenericDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use super::relation;

/// SQL as DataFusion reads it, with `@`, `^` and queries that are matrices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dialect;

/// The matrix product. Both operators are custom ones from the tokens on, which the parser reads without
/// a hook: a hook would have to clone its left operand, and so be quadratic in the length of a chain.
pub(super) const MULTIPLY: &str = "@";

/// The power.
pub(super) const POWER: &str = "^";

/// Above unary minus, whose operand is parsed at the level of `*` (40), and below `::` (50).
const POWER_LEVEL: u8 = 45;

macro_rules! as_generic {
    ($($method:ident)*) => {
        $(fn $method(&self) -> bool {
            GenericDialect.$method()
        })*
    };
}

impl sqlparser::dialect::Dialect for Dialect {
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn is_delimited_identifier_start(&self, character: char) -> bool {
        GenericDialect.is_delimited_identifier_start(character)
    }

    fn is_identifier_start(&self, character: char) -> bool {
        character != '@' && GenericDialect.is_identifier_start(character)
    }

    fn is_identifier_part(&self, character: char) -> bool {
        character != '@' && GenericDialect.is_identifier_part(character)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        match &parser.peek_token_ref().token {
            Token::CustomBinaryOperator(operator) if operator == MULTIPLY => {
                Some(Ok(self.prec_value(Precedence::MulDivModOp)))
            }
            Token::CustomBinaryOperator(operator) if operator == POWER => Some(Ok(POWER_LEVEL)),
            _ => None,
        }
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        let word = |n: usize| match &parser.peek_nth_token_ref(n).token {
            Token::Word(word) => Some(word.keyword),
            _ => None,
        };
        let opens = parser.peek_token_ref().token == Token::LParen;
        let query = match word(1) {
            Some(Keyword::SELECT | Keyword::WITH) => true,
            Some(Keyword::VALUES) => parser.peek_nth_token_ref(2).token == Token::LParen,
            _ => false,
        };
        (opens && query).then(|| relation::parse_parenthesized(parser))
    }

    /// `a IS DISTINCT FROM b AND c`, where sqlparser compares `a` with `b AND c`.
    fn parse_infix(
        &self,
        parser: &mut Parser,
        left: &Expr,
        _precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if !parser.peek_keyword(Keyword::IS) {
            return None;
        }
        let distinct = [Keyword::IS, Keyword::DISTINCT, Keyword::FROM];
        let not_distinct = [Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM];
        let build = match parser.parse_keywords(&distinct) {
            true => Expr::IsDistinctFrom,
            false if parser.parse_keywords(&not_distinct) => Expr::IsNotDistinctFrom,
            false => return None,
        };
        let right = parser.parse_subexpr(self.prec_value(Precedence::Is));
        Some(right.map(|right| build(Box::new(left.clone()), Box::new(right))))
    }

    fn is_column_alias(&self, keyword: &Keyword, parser: &mut Parser) -> bool {
        !relation::begins_axis(parser) && GenericDialect.is_column_alias(keyword, parser)
    }

    fn is_table_alias(&self, keyword: &Keyword, parser: &mut Parser) -> bool {
        !relation::begins_axis(parser) && GenericDialect.is_table_alias(keyword, parser)
    }

    as_generic! {
        allow_extract_custom
        allow_extract_single_quotes
        support_map_literal_syntax
        supports_array_join_syntax
        supports_array_typedef_with_brackets
        supports_asc_desc_in_column_definition
        supports_bitwise_shift_operators
        supports_comma_separated_set_assignments
        supports_comma_separated_trim
        supports_comment_on
        supports_comment_optimizer_hint
        supports_connect_by
        supports_constraint_keyword_without_name
        supports_create_index_with_clause
        supports_create_view_comment_syntax
        supports_cte_without_as
        supports_data_type_signed_suffix
        supports_detach
        supports_dictionary_syntax
        supports_empty_projections
        supports_explain_with_utility_options
        supports_extract_comma_syntax
        supports_filter_during_aggregation
        supports_from_first_select
        supports_group_by_expr
        supports_group_by_with_modifier
        supports_install
        supports_interpolate
        supports_interval_options
        supports_key_column_option
        supports_left_associative_joins_without_parens
        supports_limit_by
        supports_limit_comma
        supports_load_extension
        supports_match_against
        supports_match_recognize
        supports_multiline_comment_hints
        supports_named_fn_args_with_assignment_operator
        supports_nested_comments
        supports_optimize_table
        supports_parens_around_table_factor
        supports_parenthesized_set_variables
        supports_partition_by_after_order_by
        supports_pipe_operator
        supports_prewhere
        supports_projection_trailing_commas
        supports_quote_delimited_string
        supports_select_format
        supports_select_item_multi_column_alias
        supports_select_wildcard_except
        supports_select_wildcard_exclude
        supports_select_wildcard_ilike
        supports_select_wildcard_rename
        supports_select_wildcard_replace
        supports_set_names
        supports_settings
        supports_start_transaction_modifier
        supports_string_escape_constant
        supports_struct_literal
        supports_try_convert
        supports_unicode_string_literal
        supports_update_order_by
        supports_user_host_grantee
        supports_values_as_table_factor
        supports_window_clause_named_window_reference
        supports_window_function_null_treatment_arg
        supports_with_fill
        supports_xml_expressions
    }
}
