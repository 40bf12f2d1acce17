// A compiler for kernels that makes code for the processor: g++ behind device.h. Its image is the path of a library.

#include "driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#define API extern "C" int

namespace {

constexpr int SUCCESS = 0;
constexpr int COMPILATION = 6;

struct Program {
    std::string text, log, image;
    std::vector<std::pair<std::string, std::string>> headers;
};

// Where this library is, and device.h and the kernels that were compiled beside it.
std::string folder() {
    Dl_info info;
    dladdr((void*)&folder, &info);
    const std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/'));
}

// The text with all that it includes.
std::string expanded(const Program& program, const std::string& text, std::vector<std::string>& included) {
    std::istringstream lines(text);
    std::string out, line;
    while (std::getline(lines, line)) {
        const std::string mark = "#include \"";
        if (line.compare(0, mark.size(), mark) == 0) {
            const std::string name = line.substr(mark.size(), line.rfind('"') - mark.size());
            bool is_new = true;
            for (const auto& known : included) is_new &= known != name;
            if (is_new) included.push_back(name);
            for (const auto& [known, header] : program.headers) {
                if (is_new && known == name) out += expanded(program, header, included);
            }
        } else if (line != "#pragma once") {
            out += line + "\n";
        }
    }
    return out;
}

// The names behind `__global__ void`.
std::vector<std::string> kernels(const std::string& text) {
    std::vector<std::string> names;
    const std::string mark = "extern \"C\" __global__ void ";
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
        at += mark.size();
        const std::string bounds = "__launch_bounds__(THREADS) ";
        if (text.compare(at, bounds.size(), bounds) == 0) at += bounds.size();
        names.push_back(text.substr(at, text.find('(', at) - at));
    }
    return names;
}

// What finds accesses beyond a buffer or an array, and numbers that C++ gives no meaning to; the process ends at the first.
const std::string CHECKED = " -g -fsanitize=address,undefined -fno-sanitize-recover=all";

unsigned long long hash(const std::string& text) {
    unsigned long long sum = 14695981039346656037ull;
    for (unsigned char letter : text) sum = (sum ^ letter) * 1099511628211ull;
    return sum;
}

}  // namespace

// None of NVIDIA's, so that nobody takes one's images for the other's.
API nvrtcVersion(int* major, int* minor) { return *major = 0, *minor = 1, SUCCESS; }
API nvrtcGetNumSupportedArchs(int* count) { return *count = 1, SUCCESS; }
API nvrtcGetSupportedArchs(int* known) { return *known = 90, SUCCESS; }

API nvrtcCreateProgram(Program** program, const char* text, const char*, int headers, const char** texts, const char** names) {
    *program = new Program{text, "", "", {}};
    for (int at = 0; at < headers; at++) (*program)->headers.emplace_back(names[at], texts[at]);
    return SUCCESS;
}

API nvrtcDestroyProgram(Program** program) { return delete *program, SUCCESS; }

API nvrtcCompileProgram(Program* program, int, const char**) {
    if (standin_fails("fail_compile")) return program->log = "a failure that was asked for", COMPILATION;
    std::vector<std::string> included;
    std::string text = "#include \"device.h\"\n" + expanded(*program, program->text, included);
    for (const std::string& name : kernels(program->text)) text += "STANDIN_KERNEL(" + name + ")\n";
    // `static` is what keeps kernels of one name apart, and does not go with a linkage.
    for (size_t at; (at = text.find("extern \"C\" __global__")) != std::string::npos;) text.replace(at, 10, "");
    char name[32];
    const std::string checked = standin_get("sanitize") ? CHECKED : "";
    snprintf(name, sizeof name, "/kernels/%016llx", hash(text + checked));
    const std::string base = folder() + name, draft = base + "." + std::to_string(getpid());
    program->image = base + ".so";
    if (access(program->image.c_str(), R_OK) == 0) return SUCCESS;
    std::ofstream(draft + ".cpp") << text;
    // The compiler is not what is to be checked.
    const std::string options = "-std=c++20 -O1 -w -fPIC -shared -fno-extern-tls-init -ffp-contract=off" + checked + " -I '" + folder() + "'";
    const std::string command = "env -u LD_PRELOAD g++ " + options + " '" + draft + ".cpp' -o '" + draft + ".so' '" + folder() +
                                "/libcuda.so.1' 2> '" + draft + ".log'";
    const int code = system(command.c_str());
    std::stringstream log;
    log << std::ifstream(draft + ".log").rdbuf();
    program->log = log.str();
    unlink((draft + ".log").c_str());
    // Who is told of a line of it looks there.
    if (checked.empty()) unlink((draft + ".cpp").c_str());
    if (code != 0) return COMPILATION;
    return rename((draft + ".so").c_str(), program->image.c_str()) ? COMPILATION : SUCCESS;
}

API nvrtcGetProgramLogSize(Program* program, size_t* bytes) { return *bytes = program->log.size() + 1, SUCCESS; }
API nvrtcGetProgramLog(Program* program, char* log) { return strcpy(log, program->log.c_str()), SUCCESS; }
API nvrtcGetCUBINSize(Program* program, size_t* bytes) { return *bytes = program->image.size() + 1, SUCCESS; }
API nvrtcGetCUBIN(Program* program, char* image) { return strcpy(image, program->image.c_str()), SUCCESS; }
API nvrtcGetPTXSize(Program* program, size_t* bytes) { return nvrtcGetCUBINSize(program, bytes); }
API nvrtcGetPTX(Program* program, char* image) { return nvrtcGetCUBIN(program, image); }
