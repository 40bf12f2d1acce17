//! Stand-in.
use datafusion::common::extensions_options;
use datafusion::config::ConfigExtension;
extensions_options! {
    /// Ours.
    pub struct Settings {
        /// fusion
        pub fusion: bool, default = true
        /// rewrites
        pub rewrites: bool, default = true
        /// rows
        pub tile_rows_fixed: usize, default = 0
    }
}
impl ConfigExtension for Settings {
    const PREFIX: &'static str = "relatrix";
}
impl Settings {
    pub(crate) fn tile_rows(&self) -> Option<usize> {
        (self.tile_rows_fixed > 0).then_some(self.tile_rows_fixed)
    }
}
