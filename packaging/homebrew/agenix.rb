class Agenix < Formula
  desc "Pipelines of Unix tools over many inputs on many machines, durably"
  homepage "@HOMEPAGE@"
  url "@HOMEPAGE@/releases/download/v@VERSION@/agenix-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on "rust" => :build

  def install
    %w[agq agw agx].each do |program|
      system "cargo", "install", *std_cargo_args(path: "crates/#{program}")
      generate_completions_from_executable(bin/program, "completions")
      system bin/program, "man", man1
    end
  end

  service do
    run [opt_bin/"agq", "--data-dir", var/"agq", "--session-key-file", etc/"agenix/session.key"]
    keep_alive true
    log_path var/"log/agq.log"
    error_log_path var/"log/agq.log"
  end

  def caveats
    <<~TEXT
      To run agq as a service, make a key first:
        mkdir -p #{etc}/agenix && (umask 077; openssl rand -hex 32 > #{etc}/agenix/session.key)
    TEXT
  end

  test do
    assert_equal "1\n2\n", shell_output("#{bin}/agx map --keep-order -- echo ::: 1 2")
  end
end
