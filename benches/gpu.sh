#!/usr/bin/env bash
# What a GPU makes of matrix work: the same statements with `gpu = force` and `gpu = off`, their answers compared.
#
#   benches/gpu.sh [relatrix]            on a machine with a device
#   SIDE=64 LIBRARIES=FOLDER benches/gpu.sh      a dry run over the stand-in of tests/standin, built into that folder
#
# Expected of a data-centre device: products at nine tenths of the rate that cuBLAS reaches alone (products_float64 of SHOW GPU is
# measured by it), loops at 85 % of its bandwidth once what they read is there. Until matrices stay on the device between statements, a
# statement pays for bringing them: its seconds are at least its bytes by `upload` of SHOW GPU.
set -euo pipefail

relatrix="${1:-relatrix}"
side="${SIDE:-4096}"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
settings="SET result_cache = 'off'; SET gpu_libraries = '${LIBRARIES:-}'"

"$relatrix" -c "$settings; SHOW GPU"

cat > "$folder/setup.sql" <<SQL
CREATE MATRIX a = randn($side, $side, 1);
CREATE MATRIX b = randn($side, $side, 2);
CREATE MATRIX w = randn($side, 64, 3);
CREATE MATRIX v = rand($side, 1, 4);
SQL

cases=(
    "product|a @ b"
    "gram|t(a) @ a"
    "tall product|a @ w"
    "loop|relu(a * b + 1)"
    "exponentials|exp(a) / (1 + exp(b))"
    "sum|sum((a - b) ^ 2)"
    "column sums|col_sums(a * b)"
    "softmax|exp(a - row_maxs(a)) / row_sums(exp(a - row_maxs(a)))"
    "layers|relu(relu(a @ w + 1) @ t(w))"
    "power iteration|ITERATE(q => v, (a @ q) / norm(a @ q), times => 50)"
)

# How far an expression by the device is apart from that by the host, by the largest cell.
apart() {
    "$relatrix" --format csv -c "$settings; $(cat "$folder/setup.sql") SET gpu = 'off'; CREATE MATRIX h = $1;
        SET gpu = 'force'; SET gpu_on_failure = 'error'; SET gpu_precision = '$2'; CREATE MATRIX d = $1;
        SET gpu = 'off'; SELECT (MATRIX(max(abs(d - h)) / max(abs(h))));" | tail -1
}

# Measures the statements of a file under some settings.
measure() {
    printf "%s; %s;\n" "$settings" "$2" | cat - "$folder/setup.sql" > "$folder/begin.sql"
    "$relatrix" bench --setup "$folder/begin.sql" --runs "${RUNS:-5}" "$1"
}

printf '\n%-16s %12s\n' case "apart by"
for one in "${cases[@]}"; do
    name="${one%%|*}" expression="${one#*|}"
    difference="$(apart "$expression" off)"
    printf '%-16s %12s\n' "$name" "$difference"
    echo "CREATE OR REPLACE MATRIX r = $expression;" >> "$folder/cases.sql"
done

for gpu in off force; do
    printf '\ngpu = %s\n' "$gpu"
    measure "$folder/cases.sql" "SET gpu = '$gpu'"
done

# Products in less than float64, beside those in it: `products_` of SHOW GPU are the rates without what is moved and converted.
cat > "$folder/products.sql" <<SQL
CREATE OR REPLACE MATRIX r = a @ b;
CREATE OR REPLACE MATRIX r = a @ b @ a @ b @ a;
SQL
for precision in off float32 tf32 bf16; do
    difference="$(apart "a @ b" "$precision")"
    printf '\ngpu_precision = %s, apart by %s\n' "$precision" "$difference"
    measure "$folder/products.sql" "SET gpu = 'force'; SET gpu_precision = '$precision'"
done
