//! Kernels that do what they must not, in a process that checks them.

use super::*;

const BAD: &str = r#"
extern "C" __global__ void beyond_a_buffer(double *x, unsigned n) { x[n] = 1; }
extern "C" __global__ void after_a_buffer(double *x, unsigned n) { x[0] = x[n]; }
extern "C" __global__ void beyond_an_array(double *x, unsigned n) {
    __shared__ double part[16];
    part[threadIdx.x + n] = 1;
    x[threadIdx.x] = part[threadIdx.x];
}
extern "C" __global__ void beyond_a_number(double *x, unsigned n) { x[0] = 1 << 2 * n; }
"#;

/// Cells of the buffer that each is given, and threads of its block.
const CELLS: u32 = 16;

/// Which of them a process runs.
const ENTRY: &str = "CHECKED_ENTRY";

#[test]
fn a_kernel_that_leaves_its_memory_ends_a_checked_process() {
    let test = "checked::a_kernel_that_leaves_its_memory_ends_a_checked_process";
    let (Some(folder), Some(variables)) = (folder("RELATRIX_STANDIN"), sanitizer::variables())
    else {
        return;
    };
    for (entry, expected) in [
        ("beyond_a_buffer", "heap-buffer-overflow"),
        ("after_a_buffer", "heap-buffer-overflow"),
        ("beyond_an_array", "out of bounds for type"),
        ("beyond_a_number", "shift exponent 32 is too large"),
    ] {
        let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
        let Some(output) = outcome(test, &[&variables[..], &[(ENTRY, entry)]].concat()) else {
            return run(&folder, std::env::var(ENTRY).unwrap());
        };
        let text = text(&output);
        assert!(!output.status.success() && text.contains(expected), "{entry}:\n{text}");
    }
}

fn run(libraries: &Path, entry: String) {
    let device = device(Some(libraries)).unwrap();
    let source =
        Source { text: BAD.into(), headers: Headers(&[]), entry: entry.into(), contracts: false };
    let kernel = device.kernel(&source).unwrap();
    let stream = device.stream().unwrap();
    let buffer = stream.alloc(8 * CELLS as usize, "numbers").unwrap();
    let launch = Launch { work: Work::Blocks(1), block: Some(CELLS), shared_bytes: 0 };
    let arguments = [Argument::Buffer(&buffer), Argument::U32(CELLS)];
    stream.launch(&kernel, launch, &arguments).unwrap();
    stream.finish(None).unwrap();
}
