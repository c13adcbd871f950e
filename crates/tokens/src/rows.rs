//! The lengths of rows: `[CLS] <type> question: <instructions> [SEP] ([MASK] option)* [SEP] state [SEP]`.

/// Laya's numbers, as `rows.py` has them.
const OPTION_TOKENS: usize = 48;
const LEAST_OPTION: usize = 4;
const LEAST_HEAD: usize = 8;
const HEAD_RESERVE: usize = 16;

/// A checkpoint's limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// The most tokens of a row.
    pub(crate) window: usize,
    /// The most tokens of instructions and options together.
    pub(crate) budget: usize,
}

impl Layout {
    /// The length of a question's row about a state, all given in tokens. `None` if its options do not
    /// fit one row: they are dealt to several then, which is not done here.
    pub(crate) fn row(&self, lead: usize, options: &[usize], state: usize) -> Option<usize> {
        // Each has its mark.
        let mut marked: Vec<usize> = options
            .iter()
            .map(|tokens| 1 + tokens.min(&OPTION_TOKENS))
            .collect();
        let sum = |marked: &[usize]| marked.iter().sum::<usize>();
        let mut all = sum(&marked);
        if all + HEAD_RESERVE > self.budget {
            let reserved = self.budget.saturating_sub(HEAD_RESERVE);
            let each = LEAST_OPTION.max(reserved / marked.len().max(1));
            for tokens in &mut marked {
                *tokens = each.min(*tokens);
            }
            all = sum(&marked);
        }
        let kept = lead.min(LEAST_HEAD.max(self.budget.saturating_sub(all)));
        let before_options = 2 + kept;
        let last_marker = before_options + all - marked.last()?;
        if last_marker >= self.window {
            return None;
        }
        let head = before_options + all + 1;
        let room = self.window.saturating_sub(head + 1);
        Some((head + state.min(room) + 1).min(self.window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        window: 512,
        budget: 192,
    };

    #[test]
    fn a_short_row_has_all_of_its_tokens_and_four_special_ones() {
        assert_eq!(LAYOUT.row(7, &[3, 5], 20), Some(7 + 4 + 6 + 20 + 4));
    }

    #[test]
    fn a_long_state_fills_the_window_and_long_options_are_shortened() {
        assert_eq!(LAYOUT.row(7, &[3, 5], 5000), Some(512));
        assert_eq!(LAYOUT.row(7, &[100, 5], 20), Some(7 + 49 + 6 + 20 + 4));
    }

    #[test]
    fn options_that_do_not_fit_one_row_are_not_counted() {
        assert_eq!(LAYOUT.row(7, &[10; 255], 20), None);
    }
}
