"""Providers of transcripts and summaries, behind two small interfaces."""
